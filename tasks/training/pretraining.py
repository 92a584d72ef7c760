"""The engine of stage `pretrain`: shards to batches, batches to a trained network, to a folder.

trained = train_network(shards, settings, model, vocab_size, seed, draft)
"""

import hashlib
import logging
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from cluster.artifact import Artifact, brought
from cluster.errors import BadInput
from cluster.store import Draft
from model import hub
from model.config import ModelConfig
from model.encoder_decoder import build
from model.flops import non_embedding_parameter_count, parameter_count
from model.initialise import without_mup
from model.longer import lengthened
from model.objectives.base import Objective
from model.objectives.modules import own_parameters, with_objective
from model.objectives.rows import Vocabulary
from model.optim import shares_of
from model.sharded import fill, shard_by_shard
from tasks.tokens.chat import write_tokenizer_config
from tasks.tokens.encoder import Encoder
from tasks.tokens.loader import Arrangement, Loader
from tasks.tokens.mixture.repetition import repetition, repetition_warnings, segments
from tasks.tokens.mixture.settings import Mixture
from tasks.tokens.roles import TOKEN_FILES, TOKENIZER_FILES
from tasks.training.checkpoint import brought as checkpoint_here
from tasks.training.checkpoint import complete
from tasks.training.context_parallel import check_context_parallel
from tasks.training.costs import training_flops
from tasks.training.exams import SECONDS, Exams, points
from tasks.training.exams import figures as scores
from tasks.training.facts import Trained
from tasks.training.job import CHECKPOINTS, METRICS, Program, TrainJob
from tasks.training.launch import launch, load_trained
from tasks.training.memory import check_memory
from tasks.training.model_settings import ModelSettings
from tasks.training.optimizers import groups_of
from tasks.training.samples import samples_of
from tasks.training.settings import ObjectiveSettings, PretrainSettings
from tasks.training.spikes import read_skipped
from tasks.training.telemetry import Row, read_rows, thin
from tasks.training.tensor_parallel import check_tensor_parallel

OWN = "objective/model.safetensors"
log = logging.getLogger("headrace.pretrain")


def train_network(
    shards: Artifact,
    settings: PretrainSettings,
    model: ModelSettings,
    vocab_size: int,
    seed: int,
    draft: Draft,
    vocabulary: Vocabulary | None = None,
    *,
    packing: Artifact | None = None,
    mixture: Mixture | None = None,
    start: Artifact | None = None,
    exams: Exams | None = None,
    keep_state: bool = False,
) -> Objective:
    """The trained network with its objective, on the CPU; `metrics.jsonl`, facts and metrics are in
    the draft. It goes on from the weights of `start`, if there are any, and sits `exams` on the
    way. `keep_state` leaves the last step's checkpoint in the scratch folder.

    Objectives other than causal need the `vocabulary`. Raises BadInput for a shape that cannot be
    built or will not fit into memory, a context longer than the split, and a batch or a network
    that the workers cannot share.
    """
    config = shape(model, vocab_size, settings.context, start)
    check_memory(config, settings, draft.placement)
    check_context_parallel(config, settings, draft.placement.context_parallel)
    check_tensor_parallel(config, settings, draft.placement)
    arranged = None
    if packing:
        arranged = Arrangement(packing.path, mixture, settings.batches)
    order = samples_of(shards, "train", settings, config.family, vocabulary, seed, arranged)
    sources = _sources(order.loader, shards, packing, mixture, settings)
    begun = start.path if start else None
    build_program = partial(
        program, shards.path, config, settings, vocabulary, seed, arranged, begun
    )
    data = bytes_of(shards, packing)
    job = _job(build_program, config, settings, seed, data, draft, exams, keep_state)
    weights = launch(job, draft.placement)
    with torch.device("meta"):  # the weights are mapped: a file of them is read when it is wanted
        module = with_objective(
            build(config), settings.objective, generator_size=settings.generator
        )
    load_trained(module, weights)
    network, optimizer = module.network, settings.optimizer
    network.rate_shares = hub.rate_shares(start.path) if start else None
    network.rate_shares = shares_of(network, groups_of(module, optimizer), optimizer.learning_rate)
    without_mup(module)
    _keep_checkpoints(job, draft)
    _record(job, config, settings, mixture, draft)
    draft.facts |= {"epochs": round(job.batches.total / len(order), 3), "sources": sources}
    return module


def _record(
    job: TrainJob,
    config: ModelConfig,
    settings: PretrainSettings,
    mixture: Mixture | None,
    draft: Draft,
) -> None:
    """Put into the draft what a finished training tells of itself, and its rows."""
    rows = list(read_rows(draft.scratch / METRICS))
    shutil.copyfile(draft.scratch / METRICS, draft.path / METRICS)
    draft.tokens = rows[-1]["tokens"]
    draft.metrics |= figures(rows, config, settings)
    trained = Trained(
        objective=settings.of().identity(),
        context=settings.context,
        seed=job.seed,
        samples_seen=job.batches.total,
        steps=job.steps,
        batch_samples=job.batch_samples,
        batch_ramp=job.ramp,
        mixture=mixture.identity() if mixture else None,
    )
    draft.facts |= trained.noted() | {
        "vocab_size": config.vocab_size,
        "skipped_batches": read_skipped(draft.scratch),
        "history": thin(rows, ("step", "loss", "lr")),
        **({"exams": points(rows)} if job.exams else {}),
    }


def _job(
    build_program: Callable[[], Program],
    config: ModelConfig,
    settings: PretrainSettings,
    seed: int,
    data: str,
    draft: Draft,
    exams: Exams | None,
    keep_state: bool,
) -> TrainJob:
    return TrainJob(
        build=build_program,
        steps=settings.steps,
        batch_samples=settings.batch_samples,
        ramp=settings.batches.ramp,
        micro_samples=draft.placement.micro_samples(settings.context),
        optimizer=settings.optimizer,
        precision=settings.precision,
        seed=seed,
        most_skipped=settings.most_skipped,
        flops_per_token=training_flops(config, settings),
        data=data,
        scratch=draft.scratch,
        tracker=draft.tracker,
        on_progress=draft.progress,
        checkpoint_seconds=draft.placement.checkpoint_seconds,
        exams=exams,
        keep_state=keep_state,
        kept_steps=settings.kept_steps,
    )


def _keep_checkpoints(job: TrainJob, draft: Draft) -> None:
    """Those of the steps that are kept stay with the model."""
    for step in sorted(job.kept_steps):
        found = job.scratch / CHECKPOINTS / f"step-{step:08d}"
        # There is none of a step before the optimizer's first, which fp16 may skip for a while.
        if found in complete(found.parent):
            shutil.copytree(checkpoint_here(found), draft.path / CHECKPOINTS / found.name)


def program(
    shards: Path,
    config: ModelConfig,
    settings: PretrainSettings,
    vocabulary: Vocabulary | None,
    seed: int,
    arranged: Arrangement | None = None,
    start: Path | None = None,
) -> Program:
    """What every training process runs."""
    samples = samples_of(shards, "train", settings, config.family, vocabulary, seed, arranged)
    with shard_by_shard():
        network = build(config)
    if start is not None:
        fill(network, hub.named_weights(brought(start)))
        network.rate_shares = hub.rate_shares(start)
    module = with_objective(network, settings.objective, settings.z_loss, settings.generator)
    return Program(module, samples.batch)


def shape(
    model: ModelSettings, vocab_size: int, context: int, start: Artifact | None
) -> ModelConfig:
    """The shape to train: that of `start` with room for the context, or a new one."""
    if start is None:
        return model.config(vocab_size, context)
    try:
        config = lengthened(hub.load_config(start.folder()), context, model.longer)
    except ValueError as error:
        raise BadInput(str(error)) from error
    if vocab_size > config.vocab_size:
        raise BadInput(
            f"the tokenizer has {vocab_size} tokens and the model that training goes on from, "
            f"{start.name}, {config.vocab_size}; leave out tokenizer.from, to take the model's own"
        )
    return config


def arrangement_of(model: Artifact, packing: Artifact | None) -> Arrangement | None:
    """How the samples that a model was trained on were packed and drawn."""
    if packing is None:
        return None
    trained = Trained.of(model)
    mixture = Mixture.model_validate(trained.mixture) if trained.mixture else None
    return Arrangement(packing, mixture, trained.batches)


def bytes_of(*artifacts: Artifact | None) -> str:
    """One hash of the files of some artifacts, from their manifests."""
    files = [a.manifest.model_dump_json(include={"files"}) for a in artifacts if a]
    return hashlib.sha256("".join(files).encode()).hexdigest()


def _sources(
    loader: Loader,
    shards: Artifact,
    packing: Artifact | None,
    mixture: Mixture | None,
    settings: PretrainSettings,
) -> list[dict[str, Any]]:
    """How often each source will be seen, said before training starts."""
    sources = repetition(
        shards,
        packing,
        mixture,
        context=loader.context,
        steps=settings.batches,
    )
    for source in sources:
        tokens = f"{source['tokens']:,}"
        log.info("%s: %s tokens, %g epochs", source["source"], tokens, source["epochs"])
    for stretch in segments(loader.mixture_index) if loader.mixture_index else ():
        log.info("from sample %(from_sample)d on: %(share_of_samples)s of the samples", stretch)
    for warning in repetition_warnings(sources):
        log.warning("%s", warning)
    return sources


def figures(rows: list[Row], config: ModelConfig, settings: ObjectiveSettings) -> dict[str, float]:
    """The metrics of a training."""
    last = rows[-max(1, len(rows) // 20) :]
    seconds = sum(row["seconds"] for row in rows)
    rate = rows[-1]["tokens"] / seconds
    return {
        "params": float(parameter_count(config)),
        "params_non_embedding": float(non_embedding_parameter_count(config)),
        "train_loss": sum(row["loss"] for row in last) / len(last),
        "train_seconds": round(seconds, 3),
        "tokens_per_second": round(rate, 1),
        "flops_per_second": round(rate * training_flops(config, settings), 1),
        **({"mfu": round(_mean(rows, "mfu"), 4)} if all("mfu" in row for row in rows) else {}),
        **_scored([row for row in rows if SECONDS in row]),
    }


def _scored(rows: list[Row]) -> dict[str, float]:
    """The newest scores of exams, and what all of them took."""
    if not rows:
        return {}
    return scores(rows[-1]) | {SECONDS: round(sum(row[SECONDS] for row in rows), 3)}


def _mean(rows: list[Row], name: str) -> float:
    """Of a figure over time."""
    return sum(row[name] * row["seconds"] for row in rows) / sum(row["seconds"] for row in rows)


def write_model(
    trained: Objective, tokenizer: Artifact, encoder: Encoder, start: Artifact | None, draft: Draft
) -> None:
    """The model folder: weights and config in Hugging Face's names, and the tokenizer.

    What the objective learned beside the network lies apart, in `objective/`.
    """
    config = trained.network.config
    ids: dict[str, Any] = {
        "bos_token_id": encoder.eod,
        "eos_token_id": encoder.eod,
        "pad_token_id": encoder.pad,
    }
    if config.family == "encoder_decoder":
        ids["decoder_start_token_id"] = encoder.pad  # as in T5
    hub.save(draft.path, trained.network, hub.special_ids(start.path) if start else ids)
    if own := own_parameters(trained):
        (draft.path / OWN).parent.mkdir()
        save_file({name: tensor.contiguous() for name, tensor in own.items()}, draft.path / OWN)
    for name in TOKENIZER_FILES:
        if name in tokenizer.manifest.files:
            shutil.copyfile(tokenizer.file(name), draft.path / name)
    if TOKEN_FILES[0] not in tokenizer.manifest.files:
        write_tokenizer_config(draft.path, config.context)


def load_objective(folder: Path, settings: ObjectiveSettings) -> Objective:
    """The network of a model folder with the objective it was trained on."""
    module = with_objective(hub.load(folder), settings.objective, generator_size=settings.generator)
    if own := own_parameters(module):
        _restore(own, load_file(folder / OWN))
    return module


def _restore(own: dict[str, torch.Tensor], found: dict[str, torch.Tensor]) -> None:
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(found[name])
