"""What a training tells of itself, for those that score its model or go on from it."""

from typing import Any

from cluster.facts import Facts
from tasks.tokens.steps import Steps

FINISHED = "finished"


class Ending(Facts):
    """How it ended: `finished`, `diverged` or `out of memory`, and why."""

    status: str = FINISHED
    why: str = ""

    @property
    def finished(self) -> bool:
        """Whether it ended well."""
        return self.status == FINISHED


class Trained(Facts):
    """What a network was trained on, in which order."""

    objective: dict[str, Any]
    """`ObjectiveSettings` by their identity."""
    context: int
    seed: int
    samples_seen: int
    steps: int
    batch_samples: int
    batch_ramp: tuple[tuple[int, int], ...]
    mixture: dict[str, Any] | None

    @property
    def batches(self) -> Steps:
        """The samples of each step."""
        return Steps(self.steps, self.batch_samples, self.batch_ramp)
