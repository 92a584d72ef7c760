"""The factor on an fp16 training's loss, without which its small gradients would be zero.

It is halved when a gradient overflows, whose step is not made, and doubled after many that did not
(Micikevicius et al. 2018, Mixed Precision Training, section 3.2). It follows from the rows of
`metrics.jsonl`, so a training that was killed goes on with the one it had.
"""

from collections.abc import Iterable

from tasks.training.settings import Precision
from tasks.training.telemetry import Row

# Powers of two: to multiply by them and to divide again rounds nothing.
FIRST, LEAST = 2.0**16, 1.0
WINDOW = 1000
"""Steps without overflow before it is doubled."""


class LossScale:
    """The scale of the next step after these, and how many were skipped; 1 but in fp16."""

    def __init__(self, precision: Precision, rows: Iterable[Row]) -> None:
        self.dynamic = precision == "fp16"
        self.value = FIRST if self.dynamic else LEAST
        self.skipped, self._since = 0, 0
        for row in rows:
            # So a row says that its step was skipped.
            self.update(overflow=row["grad_norm"] is None)

    @property
    def lowers(self) -> bool:
        """Whether a lower scale may mend an overflow."""
        return self.value > LEAST

    def told(self) -> dict[str, float]:
        """What the row of a step says of it."""
        return {"loss_scale": self.value} if self.dynamic else {}

    def update(self, *, overflow: bool) -> None:
        """Take note of a step that was made, or was skipped for an overflow."""
        if not self.dynamic:
            return
        self._since = 0 if overflow else self._since + 1
        self.skipped += overflow
        if overflow:
            self.value = max(LEAST, self.value / 2)
        elif self._since == WINDOW:
            self.value, self._since = self.value * 2, 0
