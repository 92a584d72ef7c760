"""The engine of stage `pretrain`: shards to batches, batches to a trained network, to a folder.

network = train_network(shards, settings, model, vocab_size, seed, draft)
"""

import shutil
from functools import partial
from pathlib import Path
from typing import Any

from cluster.artifact import Artifact
from cluster.store import Draft
from model import hub
from model.config import ModelConfig
from model.flops import flops_per_token, non_embedding_parameter_count, parameter_count
from model.objectives import CausalLM
from model.optim import parameter_groups
from model.transformer import Transformer
from tasks.tokens.chat import write_tokenizer_config
from tasks.tokens.encoder import FILE, Encoder
from tasks.tokens.loader import Loader
from tasks.training.job import METRICS, Program, TrainJob
from tasks.training.launch import launch, load_trained
from tasks.training.settings import ModelSettings, PretrainSettings
from tasks.training.telemetry import Row, read_rows, thin


def train_network(
    shards: Artifact,
    settings: PretrainSettings,
    model: ModelSettings,
    vocab_size: int,
    seed: int,
    draft: Draft,
) -> Transformer:
    """The trained network, on the CPU; `metrics.jsonl`, facts and metrics are in the draft.

    Raises BadInput for a shape that cannot be built, a context longer than the split, and a batch
    that the workers cannot share.
    """
    config = model.config(vocab_size, settings.context)
    epoch = len(Loader(shards, "train", settings.context, seed))
    job = TrainJob(
        build=partial(program, shards.path, config, settings, seed),
        steps=settings.steps,
        batch_samples=settings.batch_samples,
        micro_samples=settings.micro_batch_samples,
        optimizer=settings.optimizer,
        precision=settings.precision,
        seed=seed,
        scratch=draft.scratch,
        tracker=draft.tracker,
        on_progress=draft.progress,
        checkpoint_seconds=draft.placement.checkpoint_seconds,
    )
    weights = launch(job, draft.placement)
    module = CausalLM(Transformer(config))
    load_trained(module, weights)
    rows = list(read_rows(draft.scratch / METRICS))
    shutil.copyfile(draft.scratch / METRICS, draft.path / METRICS)
    samples = job.steps * job.batch_samples
    draft.tokens = rows[-1]["tokens"]
    draft.metrics |= figures(rows, config)
    draft.facts |= {
        "context": settings.context,
        "vocab_size": vocab_size,
        "seed": seed,
        "samples_seen": samples,
        "epochs": round(samples / epoch, 3),
        "history": thin(rows, ("step", "loss", "lr")),
    }
    return module.network


def program(shards: Path, config: ModelConfig, settings: PretrainSettings, seed: int) -> Program:
    """What every training process runs."""
    loader = Loader(shards, "train", settings.context, seed)
    objective = CausalLM(Transformer(config))
    optimizer = settings.optimizer
    groups = parameter_groups(objective, optimizer.learning_rate, optimizer.weight_decay)
    return Program(objective, loader.batch, groups)


def figures(rows: list[Row], config: ModelConfig) -> dict[str, float]:
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
        "flops_per_second": round(rate * flops_per_token(config), 1),
    }


def write_model(network: Transformer, tokenizer: Artifact, encoder: Encoder, draft: Draft) -> None:
    """The model folder: weights and config in Hugging Face's names, and the tokenizer."""
    ids: dict[str, Any] = {
        "bos_token_id": encoder.eod,
        "eos_token_id": encoder.eod,
        "pad_token_id": encoder.pad,
    }
    hub.save(draft.path, network, ids)
    shutil.copyfile(tokenizer.file(FILE), draft.path / FILE)
    write_tokenizer_config(draft.path, network.config.context)
