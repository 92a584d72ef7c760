"""What a rank trains on: micro-batches of each step, fetched ahead and staged for its device."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cluster.world import World
from tasks.training.job import Program, TrainJob
from tasks.training.micro_batches import count_targets, count_tokens, pieces_of, placed, staged
from tasks.training.prefetch import Prefetcher
from tasks.training.spikes import batch_of

Pieces = list[dict[str, Tensor]]


@dataclass(frozen=True)
class Feed:
    """The batches of a job without those that are `skipped`. So many ranks `together` share their
    samples (context or tensor parallel), and get the same.
    """

    job: TrainJob
    program: Program
    world: World
    together: int
    skipped: Sequence[int]

    def fetch(self, step: int) -> tuple[Pieces, list[int], int]:
        """This rank's micro-batches of a step, the targets of each, and their tokens."""
        batches, number = self.job.batches, batch_of(step, self.skipped)
        micro, count = self.job.share(self.world.size // self.together, batches.size(number))
        local, place = micro * count, self.world.rank // self.together
        batch = self.program.batch(batches.before(number) + place * local, local)
        pieces = pieces_of(batch, micro)
        targets = [count_targets(piece) for piece in pieces]
        if self.world.device.type == "cuda":
            torch.cuda.set_device(self.world.device)  # a thread begins with the first, not its own
            module = self.program.module
            pieces = [staged(placed(piece, module), module) for piece in pieces]
        return pieces, targets, count_tokens(batch)

    def take(self, step: int, batches: Prefetcher) -> tuple[Pieces, list[float], float]:
        """This rank's micro-batches of a step, what the mean loss of each counts, so that every
        target of the whole batch counts the same (exactly 1 where each has as many), and their
        tokens. What one rank cannot fetch is an error on all, so that none waits for it.
        """
        pieces, targets, tokens, error = [], list[int](), 0.0, None
        try:
            pieces, targets, tokens = batches.take(step)
        except Exception as found:
            error = found
        everywhere, failed = self.world.sum([float(sum(targets)), float(error is not None)])
        if failed:
            self.world.fail(error)
        mean = everywhere / (len(targets) * self.world.size)
        return pieces, [count / mean if mean else 1.0 for count in targets], tokens
