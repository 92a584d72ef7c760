"""Means and correlations with their doubt: bootstrap intervals over rows or groups of rows."""

import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence

import numpy as np
from scipy import stats

# Kendall's tau-b: ties are common among ratings.
CORRELATIONS = {
    "pearson": lambda x, y: stats.pearsonr(x, y).statistic,
    "spearman": lambda x, y: stats.spearmanr(x, y).statistic,
    "kendall": lambda x, y: stats.kendalltau(x, y).statistic,
}
RESAMPLES = 2000
LEVEL = 0.95
Interval = tuple[float, float]


def mean_interval(values: Sequence[float], groups: Sequence[Hashable] | None = None) -> Interval:
    """The 95 % percentile bootstrap interval of the mean."""
    data = np.asarray(values, dtype=np.float64)
    return interval([data[rows].mean() for rows in resamples(len(data), groups)])


def statistic_interval(
    statistic: Callable[[np.ndarray], float],
    data: np.ndarray,
    groups: Sequence[Hashable] | None = None,
    count: int = RESAMPLES,
) -> Interval:
    """The 95 % percentile bootstrap interval of a statistic of `data`'s rows; resamples for which
    it is undefined (nan) are left out.
    """
    drawn = (statistic(data[rows]) for rows in resamples(len(data), groups, count=count))
    return interval([value for value in drawn if not np.isnan(value)])


def resamples(
    rows: int, groups: Sequence[Hashable] | None = None, seed: int = 0, count: int = RESAMPLES
) -> Iterator[np.ndarray]:
    """Row numbers of each bootstrap sample. With `groups`, whole groups are drawn together, since
    rows of one document are not independent. Source: Efron, Bootstrap methods, 1979.
    """
    grouped = None if groups is None else members(groups)
    drawn_from = rows if grouped is None else len(grouped)
    # A fixed seed: the same scores have the same interval.
    random = np.random.default_rng(seed)
    for _ in range(count):
        drawn = random.integers(0, drawn_from, drawn_from)
        yield drawn if grouped is None else np.concatenate([grouped[i] for i in drawn])


def interval(statistics: Sequence[float]) -> Interval:
    """The middle 95 % of resampled statistics; (nan, nan) where there are none."""
    if not len(statistics):
        return float("nan"), float("nan")
    low, high = np.quantile(statistics, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def known(value: float) -> float | None:
    """None for nan, which JSON does not have."""
    return None if np.isnan(value) else float(value)


def correlation(name: str, data: np.ndarray) -> float:
    """One coefficient of the two columns of `data`; nan where either is constant."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.ConstantInputWarning)
        return float(CORRELATIONS[name](data[:, 0], data[:, 1]))


def members(groups: Sequence[Hashable]) -> list[np.ndarray]:
    """The numbers of the rows of each group, groups in the order they come."""
    found: dict[Hashable, list[int]] = {}
    for row, group in enumerate(groups):
        found.setdefault(group, []).append(row)
    return [np.array(numbers) for numbers in found.values()]
