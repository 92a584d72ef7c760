"""What a score should not depend on, and whether it does: length, the system's family, the place.

The place is audited where answers are compared (`judging.pairwise`), by asking in both orders.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tasks.evaluation.statistics.intervals import (
    bootstrap,
    correlation,
    known,
    statistic_interval,
)


def length_audit(
    scores: Sequence[float], lengths: Sequence[float], humans: Sequence[float] | None = None
) -> dict[str, Any]:
    """Spearman correlation of score and length with its 95 % interval. With human ratings also
    `beyond_people`: that of what is left of either when people's ratings are taken out by rank.
    None where scores or lengths are all the same.
    """
    data = np.array([scores, lengths], float).T
    low, high = statistic_interval(lambda rows: correlation("spearman", rows), data, count=500)
    found = correlation("spearman", data)
    result: dict[str, Any] = {"spearman": known(found), "interval": [known(low), known(high)]}
    if humans is not None:
        left = np.array([_without(column, humans) for column in (scores, lengths)]).T
        result["beyond_people"] = None if np.isnan(found) else known(correlation("pearson", left))
    return result


def family_audit(
    scores: Sequence[float], own: Sequence[bool], humans: Sequence[float] | None = None
) -> dict[str, Any]:
    """How much higher a judge rates answers of its own family than others, with its 95 % interval;
    beyond what people see in them, where their ratings on the same scale are given.
    """
    values = np.asarray(scores, float) - (0 if humans is None else np.asarray(humans, float))
    mine = np.asarray(own, bool)
    if not mine.any() or mine.all():
        return {"difference": None, "interval": None, "own": int(mine.sum())}

    def gap(rows: np.ndarray) -> list[float]:
        both = (rows[mine[rows]], rows[~mine[rows]])
        if not all(map(len, both)):
            return [float("nan")]
        return [float(values[both[0]].mean() - values[both[1]].mean())]

    found = bootstrap(gap, len(values), count=1000)
    ends = [known(end) for end in found.interval()]
    return {"difference": float(found.found_S[0]), "interval": ends, "own": int(mine.sum())}


def _without(column: Sequence[float], given: Sequence[float]) -> np.ndarray:
    """What is left of the ranks of a column when a line in the ranks of another is taken out."""
    from scipy.stats import rankdata

    x, y = rankdata(given), rankdata(column)
    slope, start = np.polyfit(x, y, 1) if np.ptp(x) else (0.0, y.mean())
    return np.asarray(y - slope * x - start)
