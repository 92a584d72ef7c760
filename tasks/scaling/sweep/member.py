"""One run of a sweep: pretrain a small model, measure it on held-out windows that all runs share.

A run whose loss stops being finite, or that does not fit into memory, is a result too: its artifact
says so and why, has no loss, and can therefore never be the best one.
"""

import logging
import math
from typing import TYPE_CHECKING

from cluster.artifact import Artifact
from cluster.stage import stage
from cluster.store import Draft
from model.flops import flops_per_token, non_embedding_parameter_count, parameter_count
from tasks.scaling.sweep.plan import MemberSettings
from tasks.scaling.sweep.trunk import branch_off
from tasks.tokens.shards.facts import ShardFacts
from tasks.training.job import Diverged
from tasks.training.outcome import outcome

if TYPE_CHECKING:
    from model.objectives.base import Objective

BATCH_TOKENS = 4096
# The held-out windows are the same for every run, whatever its own seed.
WINDOW_SEED = 0
log = logging.getLogger("headrace.sweep")


@stage(version=3, name="sweep", trains=True)
def sweep_run(
    shards: Artifact,
    settings: MemberSettings,
    seed: int,
    draft: Draft,
    trunk: Artifact | None = None,
) -> None:
    """Train one member of the grid on the training split, by the same code as pretraining, from
    where its `trunk` ends if it has one.

    Writes `metrics.jsonl`. Metrics: `params`, `params_non_embedding`, `tokens`, `flops` of the run
    from its first step and `flops_own` after the trunk, `seconds` likewise, and, where it finished,
    `loss` (held-out, nats a token) and `bits_per_byte`.
    Facts: `width`, `depth`, `steps`, `learning_rate`, `status` (finished, diverged or out of
    memory) and `why`.
    """
    from tasks.training.pretraining import train_network

    draft.tracker.params({**settings.identity(), "seed": seed})
    draft.tracker.datasets({"shards": shards, **({"trunk": trunk} if trunk else {})})
    training, vocab_size = settings.training, ShardFacts.of(shards).vocab_size
    loss = math.nan
    with outcome(draft):
        branch_off(trunk, training, draft)
        trained = train_network(shards, training, settings.model, vocab_size, seed, draft)
        loss = heldout_loss(trained, shards, settings.heldout_tokens, draft)
        if not math.isfinite(loss):
            raise Diverged(f"its held-out loss is {loss}")
    draft.facts |= {
        "width": settings.model.width,
        "depth": settings.model.depth,
        "steps": training.steps,
        "learning_rate": training.optimizer.learning_rate,
    }
    draft.metrics = _cost(settings, vocab_size, trunk, draft) | _measured(shards, loss)
    draft.tracker.metrics([{"step": training.steps + 1, **draft.metrics}])
    log.info("%s: held-out loss %.4f %s", settings.label, loss, draft.facts["why"])


def heldout_loss(objective: "Objective", shards: Artifact, tokens: int, draft: Draft) -> float:
    """Mean loss in nats a token over windows drawn from all over the held-out split."""
    import torch

    from tasks.tokens.loader import Loader
    from tasks.training.micro_batches import on_device

    device = "cuda" if draft.placement.gpus else "cpu"
    torch.set_num_threads(draft.placement.cpu_threads)  # members run side by side
    objective, context = objective.eval().to(device), objective.network.config.context
    loader = Loader(shards, "heldout", context, WINDOW_SEED)
    windows = min(len(loader), max(1, tokens // context))
    rows, nats, count = max(1, BATCH_TOKENS // context), 0.0, 0
    for first in range(0, windows, rows):
        batch = loader.batch(first, min(rows, windows - first))
        tensors = on_device(batch, objective, device)
        losses = objective.scored(**tensors)["tokens"].losses
        nats, count = nats + float(losses.double().sum()), count + len(losses)
    return nats / count


def _cost(
    settings: MemberSettings, vocab_size: int, trunk: Artifact | None, draft: Draft
) -> dict[str, float]:
    """What the run took; for one that did not finish, what it would have taken."""
    training = settings.training
    config = settings.model.config(vocab_size, training.context)
    tokens, shared = training.steps * training.batch_tokens, trunk.manifest.tokens if trunk else 0
    per_token = flops_per_token(config, training.context)
    return {
        "params": float(parameter_count(config)),
        "params_non_embedding": float(non_embedding_parameter_count(config)),
        "tokens": float(tokens),
        "flops": float(per_token * tokens),
        "flops_own": float(per_token * (tokens - (shared or 0))),
        "seconds": draft.metrics.get("train_seconds", 0.0),
    }


def _measured(shards: Artifact, loss: float) -> dict[str, float]:
    """The loss and its bits per byte; nothing for a loss that is not finite."""
    if not math.isfinite(loss):
        return {}
    split = ShardFacts.of(shards).heldout
    bits = loss / math.log(2) * split.tokens / split.bytes
    return {"loss": loss, "bits_per_byte": bits}
