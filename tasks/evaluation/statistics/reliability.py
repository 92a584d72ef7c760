"""How far repeats of a judge, or several judges, agree with each other: Krippendorff's alpha.

Source: Krippendorff, Computing Krippendorff's alpha-reliability, 2011.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from tasks.evaluation.statistics.intervals import known, statistic_interval

Level = Literal["nominal", "ordinal", "interval"]


def krippendorff(
    ratings: Sequence[Sequence[float | None]], level: Level = "interval"
) -> dict[str, Any]:
    """`alpha` with its 95 % `interval` over units, and `units` with two ratings or more.

    `ratings` are per unit (a row, say), those of each rater or repeat, None where missing. 1 is
    full agreement, 0 that of chance; None where all ratings are the same or nothing can be paired.
    """
    width = max(map(len, ratings), default=0)
    whole = [[*row, *[None] * (width - len(row))] for row in ratings]
    data = np.array(whole, dtype=float).reshape(len(ratings), width)  # None becomes nan
    paired = data[(~np.isnan(data)).sum(1) > 1]
    values = np.unique(paired[~np.isnan(paired)])
    if len(values) < 2:
        return {"alpha": None, "interval": None, "units": len(paired)}
    gaps = _distances(values, paired, level)
    alpha = _alpha(paired, values, gaps)
    low, high = statistic_interval(lambda rows: _alpha(rows, values, gaps), paired, count=500)
    return {"alpha": alpha, "interval": [known(low), known(high)], "units": len(paired)}


def _alpha(rows: np.ndarray, values: np.ndarray, gaps: np.ndarray) -> float:
    """1 - observed / expected disagreement, from the coincidences of values within units."""
    counts = np.stack([(rows == value).sum(1) for value in values], axis=1).astype(float)
    sizes = counts.sum(1)
    pairs = (counts / (sizes - 1)[:, None]).T @ counts
    # No rating is paired with itself.
    pairs -= np.diag((counts / (sizes - 1)[:, None]).sum(0))
    totals = pairs.sum(0)
    expected = (np.outer(totals, totals) * gaps).sum() / (totals.sum() - 1)
    return float(1 - (pairs * gaps).sum() / expected) if expected else float("nan")


def _distances(values: np.ndarray, rows: np.ndarray, level: Level) -> np.ndarray:
    """Squared differences between any two values."""
    if level == "nominal":
        return 1.0 - np.eye(len(values))
    if level == "interval":
        return np.asarray((values[:, None] - values[None, :]) ** 2)
    counts = np.array([(rows == value).sum() for value in values], dtype=float)
    # All ratings from one value to another, less half of those of both: the difference of these.
    ranks = np.cumsum(counts) - counts / 2
    return np.asarray((ranks[:, None] - ranks[None, :]) ** 2)
