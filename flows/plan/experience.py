"""How long a stage takes and how much it writes, with how much doubt: from what stages of its kind
took in this store, and where there were none from what one server core took once.

A stage's figures (`flows.plan.work`) give nominal seconds, `NOMINAL`. What the built ones took over
theirs is the correction, in logarithms: those with most settings the same and of about the same
size count most, and every kind's mean counts a little for all others, since a machine that is twice
as fast is so for most. Their scatter about it, with as much of a wide prior as a few manifests
weigh, is the spread; Student's t makes the band of it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from cluster.manifest import Manifest
from flows.plan.work import BYTES_PER_PARAM, KEPT_BYTES, Work

COLD_SECONDS = 8.0  # PyTorch and DeepSpeed, imported
NOMINAL: Mapping[str, Mapping[str, float]] = {
    "": {"": 0.2, "bytes": 2e-7},
    "read": {"": 0.1, "bytes": 2e-8, "files": 1.3e-3},
    "filter": {"": 0.3, "bytes": 3e-7},
    "dedup": {"": 0.1, "bytes": 1.2e-7},
    "decontaminate": {"": 0.2, "bytes": 1.2e-7},
    "redact": {"": 0.1, "bytes": 1.3e-7},
    "grade": {"": 2.0, "steps": 0.05},
    "synthesize": {"": 2.0, "steps": 0.2},
    "concatenate": {"": 0.1, "bytes": 1e-8},
    "vectors": {"": 1.5, "bytes": 3e-7},
    "dense": {"": 3.0, "steps": 0.002, "cold": COLD_SECONDS},
    "word_scores": {"": 1.0, "bytes": 1e-7},
    "tokenizer": {"": 0.1, "bytes": 4e-7},
    "shards": {"": 0.1, "bytes": 8e-8},
    "packing": {"": 0.02, "bytes": 2e-8},
    "pretrain": {"": 0.5, "steps": 0.01, "asked": 5e-5, "cold": COLD_SECONDS},
    "trunk": {"": 0.2, "steps": 0.003, "cold": COLD_SECONDS},
    "sweep": {"": 0.2, "steps": 0.003, "cold": COLD_SECONDS},
    "evaluate": {"": 0.2, "bytes": 4e-7},
    **{
        name: {"": 2.5, "steps": 0.01, "cold": COLD_SECONDS}
        for name in ("classify", "regress", "label", "extract")
    },
    "instruct": {"": 3.0, "steps": 0.01, "cold": COLD_SECONDS},
    "distill": {"": 2.5, "steps": 0.01, "cold": COLD_SECONDS},
    "preferences": {"": 1.0, "bytes": 1e-7},
    "prefer": {"": 2.0, "steps": 0.02, "cold": COLD_SECONDS},
    "translate": {"": 5.0, "steps": 0.02, "cold": COLD_SECONDS},
    "summarise": {"": 5.0, "steps": 0.02, "cold": COLD_SECONDS},
    "answers": {"": 0.4, "steps": 2e-4},
    "infer": {"": 1.0, "steps": 2e-4},
    "judge": {"": 0.5, "steps": 0.01, "endpoint": 10.0},
    "steps": {"endpoint": 3.0},
    "exam": {"": 1.0},
    "compare": {"": 0.05},
    "fit": {"": 0.05, "steps": 2e-3},
    "forecast": {"": 0.01},
    "report": {"": 0.1, "files": 0.05},
    "run": {"": 0.5, "built": 0.5, "session": 6.0, "cached": 0.03},
}
"""Seconds, and seconds for each unit of a stage's figures, by kind; FLOPs by their rate. `run` is
what a run takes beside its stages: Ray's start, its workers' imports, Prefect and MLflow."""
WRITTEN: Mapping[str, Mapping[str, float]] = {
    "": {"": 1e4, "params": BYTES_PER_PARAM},
    "read": {"bytes": 0.25},
    "filter": {"bytes": 0.9},
    "dedup": {"bytes": 1.0},
    "decontaminate": {"bytes": 1.0},
    "redact": {"bytes": 0.97},
    "grade": {"steps": 1e3},
    "synthesize": {"steps": 500.0},
    "concatenate": {"bytes": 1.0},
    "tokenizer": {"": 1e4, "params": BYTES_PER_PARAM},
    "shards": {"bytes": 2.0},
    "packing": {"bytes": 0.1},
    "pretrain": {"": 3e5, "params": BYTES_PER_PARAM, "kept": KEPT_BYTES},
    "evaluate": {},
    "report": {"": 1e4, "files": 1e4},
}
"""Bytes that a stage leaves, likewise."""
REMEMBERED = 48  # manifests of a kind, the newest
PRIOR_SPREAD, PRIOR_WEIGHT = 0.45, 3.0  # of a kind of which nothing is known here; in logarithms
OTHERS_WEIGHT = 0.3
FARTHEST = 3.0  # a factor of 20: more was of another machine
Z90, T90 = 1.2816, 0.8467  # Student's quantile at 90 % is about Z90 (1 + T90 / degrees of freedom)


class Guess(NamedTuple):
    """The likely value, and the logarithm of the factor that 80 % are within on either side."""

    value: float
    reach: float = 0.0

    @property
    def low(self) -> float:
        """One in ten is below."""
        return self.value * math.exp(-self.reach)

    @property
    def high(self) -> float:
        """One in ten is above."""
        return self.value * math.exp(self.reach)


NOTHING = Guess(0.0)


class Past(NamedTuple):
    """A stage that was built: its settings and figures, and what came of it."""

    settings: Mapping[str, Any]
    nominal: float
    error: float  # log(what came of it / nominal)


@dataclass(frozen=True)
class Kind:
    """Stages of one kind: what the table said of each, and how far it was out."""

    past: Sequence[Past]

    @cached_property
    def total(self) -> float:
        """The sum of all errors."""
        return sum(one.error for one in self.past)

    def guess(self, settings: Mapping[str, Any], nominal: float, others: float) -> Guess:
        """What a stage of these settings takes, of which the table says `nominal`: as much as that
        is out by in past ones, those most that are like it in settings and size. `others`, the
        mean error of all kinds, counts as a little experience of this one.
        """
        if not nominal:
            return NOTHING
        weights = [
            _alike(one.settings, settings) * _near(one.nominal, nominal) for one in self.past
        ]
        known = sum(weights)
        pulled = OTHERS_WEIGHT * others + sum(
            weight * one.error for weight, one in zip(weights, self.past, strict=True)
        )
        mean = pulled / (OTHERS_WEIGHT + known)
        scatter = sum(
            weight * (one.error - mean) ** 2 for weight, one in zip(weights, self.past, strict=True)
        )
        freedom = PRIOR_WEIGHT + known
        spread = math.sqrt((PRIOR_WEIGHT * PRIOR_SPREAD**2 + scatter) / freedom)
        reach = Z90 * (1 + T90 / freedom) * spread * math.sqrt(1 + 1 / (1 + known))
        return Guess(nominal * math.exp(mean), reach)


class Experience:
    """What a store's manifests, by kind of stage, tell of those to come."""

    def __init__(
        self, manifests: Mapping[str, Sequence[Manifest]], runs: Sequence[Mapping[str, float]]
    ):
        told = {kind: [m for m in found if m.work] for kind, found in manifests.items()}
        self.times = {
            kind: Kind([_past(m, NOMINAL, m.seconds) for m in found if m.seconds])
            for kind, found in told.items()
        }
        self.sizes = {
            kind: Kind([p for m in found if (p := _past(m, WRITTEN, m.size)).nominal])
            for kind, found in told.items()
        }
        self.runs = Kind([_run(spent) for spent in runs[-REMEMBERED:]])
        self.watts = _watts([m for found in told.values() for m in found])
        self.known = sum(len(kind.past) for kind in self.times.values())
        # Two stages that came out as the table says count beside those that are known.
        self.machine = sum(kind.total for kind in self.times.values()) / (self.known + 2)

    def seconds(self, kind: str, settings: Mapping[str, Any], work: Work) -> Guess:
        """How long a stage takes."""
        known = self.times.get(kind, Kind(()))
        return known.guess(settings, nominal(NOMINAL, kind, work), self.machine)

    def beside(self, work: Work) -> Guess:
        """How long a run takes beside its stages."""
        return self.runs.guess({}, nominal(NOMINAL, "run", work), self.machine)

    def written(self, kind: str, settings: Mapping[str, Any], work: Work) -> Guess:
        """Bytes of the files that it leaves."""
        return self.sizes.get(kind, Kind(())).guess(settings, nominal(WRITTEN, kind, work), 0.0)


def nominal(
    table: Mapping[str, Mapping[str, float]], kind: str, work: Mapping[str, float]
) -> float:
    """What `NOMINAL` or `WRITTEN` says of a stage with these figures: seconds, or bytes."""
    each = table.get(kind, table[""])
    found = each.get("", 0.0) + sum(each.get(name, 0.0) * value for name, value in work.items())
    timed = table is NOMINAL and work.get("rate")
    return found + (work["flops"] / work["rate"] if timed else 0.0)


def _past(manifest: Manifest, table: Mapping[str, Mapping[str, float]], came: float) -> Past:
    settings = manifest.settings.get("settings", manifest.settings)
    return _compared(settings, nominal(table, manifest.stage, manifest.work), came)


def _compared(settings: Mapping[str, Any], expected: float, came: float) -> Past:
    error = math.log(max(came, 1e-3) / expected) if expected else 0.0
    return Past(settings, expected, min(FARTHEST, max(-FARTHEST, error)))


def _run(spent: Mapping[str, float]) -> Past:
    return _compared({}, nominal(NOMINAL, "run", spent), spent["beside"])


def _alike(then: Mapping[str, Any], now: Mapping[str, Any]) -> float:
    """1 for the same settings, less for each that differs."""
    differing = sum(then.get(key) != value for key, value in now.items())
    return 1 / (1 + differing)


def _near(then: float, now: float) -> float:
    """1 for the same size, a third for one several times as large."""
    return math.exp(-abs(math.log(then / now)) / 1.5)


def _watts(manifests: Sequence[Manifest]) -> float | None:
    """Watts that stages took, where machines told."""
    told = [m for m in manifests if "joules" in m.resources]
    seconds = sum(m.seconds for m in told)
    return sum(m.resources["joules"] for m in told) / seconds if seconds else None
