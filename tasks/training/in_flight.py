"""Steps that were begun, and of which a device may still be at work.

On a CPU a step is over when its row is known. A GPU is given the next step before it has said what
came of the last: to read a loss is to wait for it, and while it is waited for it has nothing to do.
So there a row is read one step late, and a step that should not have been made is found out one
step late; training then goes back to a checkpoint, which is written of known rows only.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tasks.training.telemetry import Row


@dataclass(frozen=True)
class Asked:
    """What the ranks ask for after a step: to stop, to save, to commit what all have written."""

    stop: bool = False
    save: bool = False
    written: bool = False

    def __or__(self, other: "Asked") -> "Asked":
        stop, save = self.stop or other.stop, self.save or other.save
        return Asked(stop, save, self.written or other.written)


@dataclass(frozen=True)
class Unread:
    """A step: what is known of its row, when it was begun, and what the ranks ask for after it.

    `figures` waits for the device and gives the loss and, by the `names`, what else is told of
    the batch, all means over the ranks, and last the gradient norm; None is no norm, of a step that
    was skipped.
    """

    row: Row
    started: float
    asked: Asked
    names: tuple[str, ...]
    figures: Callable[[], list[float | None]]
