"""The trunk of a sweep's runs of one size: trained at constant rate, and kept with its moments.

A trunk may go on from a shorter one, so a longer run added to a sweep trains what is new only. Runs
branch off it by `branch_off`, which puts its checkpoint where the training loop looks for its own.
"""

import shutil
from typing import TYPE_CHECKING

from cluster.artifact import Artifact
from cluster.handover import publish
from cluster.stage import stage
from cluster.store import Draft
from tasks.scaling.sweep.plan import TrunkSettings
from tasks.tokens.shards.facts import ShardFacts
from tasks.training.facts import Ending
from tasks.training.job import CHECKPOINTS, METRICS, Diverged
from tasks.training.outcome import outcome

if TYPE_CHECKING:
    from tasks.training.settings import PretrainSettings


@stage(version=2, trains=True)
def trunk(
    shards: Artifact,
    settings: TrunkSettings,
    seed: int,
    draft: Draft,
    before: Artifact | None = None,
) -> None:
    """Train one size at constant rate to its last step, from the trunk `before` if there is one.

    Leaves the state of the last step and `metrics.jsonl`. One that diverges says so in its facts,
    `status` and `why`, and has no state.
    """
    from tasks.training.checkpoint import brought
    from tasks.training.pretraining import train_network

    draft.tracker.params({**settings.identity(), "seed": seed})
    draft.tracker.datasets({"shards": shards})
    vocab_size = ShardFacts.of(shards).vocab_size
    with outcome(draft):
        branch_off(before, settings.training, draft)
        train_network(
            shards, settings.training, settings.model, vocab_size, seed, draft, keep_state=True
        )
        last = f"step-{settings.training.steps:08d}"
        state = brought(draft.scratch / CHECKPOINTS / last)
        shutil.copytree(state, draft.path / CHECKPOINTS / last)


def branch_off(trunk: Artifact | None, training: "PretrainSettings", draft: Draft) -> None:
    """Let the training of a draft begin where a trunk ends; from scratch without one.

    Raises Diverged when the trunk did.
    """
    from tasks.training.checkpoint import complete, graft

    if trunk is None:
        return
    if not (ending := Ending.of(trunk)).finished:
        raise Diverged(f"its trunk {trunk.manifest.label}: {ending.why}")
    folder = draft.scratch / CHECKPOINTS
    if complete(folder):
        return
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(trunk.file(METRICS), draft.scratch / METRICS)
    publish(draft.scratch / METRICS)
    changes = {"steps": training.steps, **training.optimizer.model_dump(mode="json")}
    (last,) = (trunk.folder() / CHECKPOINTS).iterdir()  # of an artifact: it is on this node
    graft(last, folder, changes)
