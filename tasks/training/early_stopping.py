"""When to stop: the loss on rows held apart, and how long ago it was lowest.

A training that is killed goes on with what its rows say, and the best weights of its checkpoint.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

VALIDATION = "validation_loss"
"""The loss on the rows held apart, in the row of metrics of a step after which it was taken."""


@dataclass(frozen=True)
class EarlyStopping:
    """Look every so many steps, and end after so many looks that found nothing better."""

    every: int
    patience: int


@dataclass
class Looks:
    """The validation losses found so far, by step, of a training of so many `steps`; `how` is None
    where none are taken.
    """

    how: EarlyStopping | None
    steps: int
    found: dict[int, float] = field(default_factory=dict)

    @classmethod
    def of(cls, how: EarlyStopping | None, steps: int, rows: Iterable[dict[str, Any]]) -> "Looks":
        """Of a training of so many steps that has these rows already."""
        return cls(how, steps, {r["step"]: r[VALIDATION] for r in rows if VALIDATION in r})

    def due(self, step: int) -> bool:
        """Whether to look after this step; the last one is always looked at."""
        return self.how is not None and (step % self.how.every == 0 or step == self.steps)

    def add(self, step: int, loss: float) -> bool:
        """Note what was found; whether it is better than all before it."""
        self.found[step] = loss
        return self.best == step

    @property
    def best(self) -> int | None:
        """The step with the lowest loss, of several the first; None before there is one."""
        real = {step: loss for step, loss in self.found.items() if math.isfinite(loss)}
        return min(real, key=lambda step: (real[step], step)) if real else None

    @property
    def over(self) -> bool:
        """Whether the last looks found nothing better, so often that training ends."""
        if self.how is None or self.best is None:
            return False
        return sum(step > self.best for step in self.found) >= self.how.patience
