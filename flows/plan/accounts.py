"""What a run was to take, and what it took: side by side in its record."""

from collections.abc import Sequence
from typing import Any

from cluster.runs import StageRecord
from flows.plan.price import HOUR, Price

COMPARED = ("seconds", "seconds_low", "seconds_high")


def with_plan(stage: StageRecord, price: Price) -> StageRecord:
    """The record of a stage, beside its planned time where it was built."""
    if stage.state == "cached":
        return stage
    expected: dict[str, Any] = price.of(stage.name)
    return stage.model_copy(update={"planned": {key: expected[key] for key in COMPARED}})


def spent(price: Price, stages: Sequence[StageRecord], seconds: float) -> dict[str, float]:
    """What a run took: `seconds`, of which some were `beside` its stages, and the rest in the units
    of the plan. `built` and `cached` count its stages.
    """
    took = {stage.name: stage.seconds for stage in stages}
    built = [stage for stage in stages if stage.state == "built"]
    busy = price.scheduled(took).seconds
    found = {
        "seconds": seconds,
        "beside": max(0.0, seconds - busy),
        "cost": seconds * price.usd_per_hour / HOUR + price.replies,
        "device_hours": sum(took[s.name] * price.stages[s.name].devices for s in built) / HOUR,
        "bytes_written": float(sum(stage.size for stage in built)),
        "built": float(len(built)),
        "cached": float(len(stages) - len(built)),
        "session": float(bool(built)),
    }
    told = [stage.resources["joules"] for stage in built if "joules" in stage.resources]
    return found | ({"joules": sum(told)} if told else {})
