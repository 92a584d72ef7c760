"""Tracking of training stages: parameters, metrics per step, inputs, the model by reference."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Tracker(Protocol):
    """What a training stage may tell the tracking store; must never raise into training."""

    run_id: str | None

    def params(self, values: Mapping[str, Any]) -> None:
        """Log parameters once."""

    def metrics(self, rows: Sequence[Mapping[str, float]]) -> None:
        """Log rows of figures; each row has a `step`."""

    def datasets(self, inputs: Mapping[str, Any]) -> None:
        """Log the input artifacts by name."""


class NullTracker:
    """Tracks nothing; for tests and stages that do not train."""

    run_id: str | None = None

    def params(self, values: Mapping[str, Any]) -> None:
        """Do nothing."""

    def metrics(self, rows: Sequence[Mapping[str, float]]) -> None:
        """Do nothing."""

    def datasets(self, inputs: Mapping[str, Any]) -> None:
        """Do nothing."""
