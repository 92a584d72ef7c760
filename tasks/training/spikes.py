"""Batches that harm: known by their loss, then skipped by a training that goes back before them.

One batch of garbage can undo what thousands of steps have learnt. When the loss of a step is out of
all proportion, or not finite, the update is not made: training goes back to its newest checkpoint
and comes again without that batch (Chowdhery et al. 2022, PaLM, section 5.1). In its place it sees
the batch before once more, so that all other steps keep their own. What was skipped is noted in
`skipped.json`, so that a training that is killed after that skips it too.
"""

import json
import logging
import statistics
from collections import deque
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.files import write_atomically
from cluster.handover import publish
from tasks.training.job import Diverged, TrainJob

if TYPE_CHECKING:
    from cluster.world import World

SKIPPED = "skipped.json"
WINDOW = 50  # losses whose median is what is usual
LEAST = 10  # of them before any loss is held against it
FACTOR = 3.0  # times the usual loss that is still learnt from
log = logging.getLogger("headrace.train")


class Spike(RuntimeError):
    """A step whose loss or gradient is not one to learn from."""

    def __init__(self, step: int, found: str) -> None:
        super().__init__(found)
        self.step = step


class LossWatch:
    """The losses of the last steps, the same on every rank."""

    def __init__(self, losses: Iterable[float]) -> None:
        self._recent = deque(losses, WINDOW)

    def usual(self, loss: float) -> float | None:
        """The median of the last losses when `loss` is more than `FACTOR` times that, else None.

        A loss that is not is remembered. The first `LEAST` are never too high.
        """
        # Not the mean, which one high loss that was let through would lift.
        median = statistics.median(self._recent) if len(self._recent) >= LEAST else None
        # Of a loss that may be 0 or less there is no multiple.
        if median is not None and loss > FACTOR * median > 0:
            return median
        self._recent.append(loss)
        return None


def read_skipped(folder: Path) -> list[int]:
    """The batches, by the number of the step they were for, that a training skips."""
    path = folder / SKIPPED
    return json.loads(path.read_text()) if path.exists() else []


def note_skipped(folder: Path, batches: Iterable[int]) -> None:
    """Let the training in this folder skip these."""
    write_atomically(folder / SKIPPED, json.dumps(sorted(batches)))
    publish(folder / SKIPPED)


def batch_of(step: int, skipped: Collection[int]) -> int:
    """The batch that a step sees: its own, or the last before it that is not skipped."""
    before = (batch for batch in range(step, 0, -1) if batch not in skipped)
    after = (batch for batch in range(step, step + len(skipped) + 1) if batch not in skipped)
    # Before the first batch there is none: then the next one that is not skipped.
    return next(before, None) or next(after)


def skip(job: TrainJob, world: "World", spike: Spike) -> None:
    """Note that a batch is to be skipped; raise Diverged when that would be one too many."""
    step, skipped = spike.step, world.broadcast(read_skipped(job.scratch))
    batch = batch_of(step, skipped)
    first, last = job.batches.before(batch), job.batches.before(batch + 1) - 1
    told = f"step {step} of {job.steps}: {spike}, on samples {first} to {last}"
    if step in skipped or len(skipped) >= job.most_skipped:
        after = f" after {len(skipped)} skipped batches {skipped}" if skipped else ""
        raise Diverged(
            f"{told}; the step was not taken{after}. Lower the learning rate "
            f"(now {job.optimizer.learning_rate}) or look at those samples"
        )
    if world.leads:
        note_skipped(job.scratch, [*skipped, step])
        log.warning(
            "%s: back to the newest checkpoint, to skip that batch (%d of at most %d)",
            told,
            len(skipped) + 1,
            job.most_skipped,
        )
    world.broadcast(None)
