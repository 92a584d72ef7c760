"""The pretraining stage: token shards to a model folder that Hugging Face's library can load."""

import logging
from contextlib import nullcontext

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.stage import stage
from cluster.store import Draft
from tasks.tokens.encoder import load
from tasks.tokens.mixture.settings import Mixture
from tasks.tokens.shards.facts import EncodingFacts
from tasks.training.agreement import check_objective, check_rates
from tasks.training.exams import AskedExams
from tasks.training.model_settings import ModelSettings
from tasks.training.outcome import outcome
from tasks.training.settings import PretrainSettings

log = logging.getLogger("headrace.pretrain")


@stage(version=8, trains=True)
def pretrain(
    shards: Artifact,
    tokenizer: Artifact,
    settings: PretrainSettings,
    model: ModelSettings,
    seed: int,
    draft: Draft,
    packing: Artifact | None = None,
    mixture: Mixture | None = None,
    variant: bool = False,
    start: Artifact | None = None,
    exams: AskedExams | None = None,
    proposal: Artifact | None = None,
) -> None:
    """Train a network on the shards' training split, from scratch or going on from the model
    `start`; the artifact is its model folder. Without a packing, samples are windows of the split;
    a mixture, given or that of a `proposal` (stage `propose`), needs one. The network sits `exams`
    as it is after some steps. A `variant` is one of several: if it diverges or runs out of memory
    its facts say so (`status`, `why`), and it has no model.

    Files: `config.json`, `model.safetensors`, `tokenizer.json`, `tokenizer_config.json`, and
    `metrics.jsonl` with a row per step; where the objective learns something beside the network,
    `objective/model.safetensors`. Facts: `objective` (its settings), `context`, `seed`,
    `steps`, `batch_samples`, `batch_ramp`, `samples_seen`, `skipped_batches`, `epochs`, `sources`
    (what was seen of each, and how often), `mixture`, `vocab_size`, `history`, `exams` (every
    score, or why there is none). Metrics: `params`, `params_non_embedding`, `train_loss` (nats a
    target, mean of the last twentieth of the steps), `train_seconds`, `tokens_per_second`,
    `flops_per_second`, `mfu`; the last `exams/NAME.FIGURE` and the `exam_seconds` of all.
    Raises BadInput, before anything trains, when shards, tokenizer, model and objective do not
    belong together.
    """
    check_objective(model, settings)
    check_rates(model, settings.optimizer)
    check_agreement(shards, tokenizer)
    from tasks.training import pretraining
    from tasks.training.samples import vocabulary_of
    from tasks.training.sitting import prepared

    encoder = load(tokenizer)
    vocabulary = vocabulary_of(encoder, settings, model.family)
    if proposal:
        mixture = Mixture.model_validate(proposal.manifest.facts["mixture"])
    draft.tracker.params(
        {**settings.identity(), "model": model.model_dump(mode="json"), "seed": seed}
    )
    begun = {"start": start} if start else {}
    draft.tracker.datasets({"shards": shards, "tokenizer": tokenizer, **begun})
    config = pretraining.shape(model, encoder.ids, settings.context, start)
    sat = prepared(exams, config, settings.objective, encoder, start) if exams else None
    with outcome(draft) if variant else nullcontext():
        trained = pretraining.train_network(
            shards,
            settings,
            model,
            encoder.ids,
            seed,
            draft,
            vocabulary,
            packing=packing,
            mixture=mixture,
            start=start,
            exams=sat,
        )
        pretraining.write_model(trained, tokenizer, encoder, start, draft)
        loss = draft.metrics["train_loss"]
        log.info("trained on %s tokens to a loss of %.4f", draft.tokens, loss)


def check_agreement(shards: Artifact, tokenizer: Artifact) -> None:
    """Raise BadInput unless the shards were encoded by this tokenizer."""
    ours, theirs = load(tokenizer).sha256, EncodingFacts.of(shards).tokenizer_sha256
    if theirs != ours:
        raise BadInput(
            f"{shards.name} was encoded by another tokenizer than {tokenizer.name}: SHA-256 "
            f"{theirs}, here {ours}; run `headrace run RECIPE --rebuild shards`"
        )
