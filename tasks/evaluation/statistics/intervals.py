"""Means and correlations with their doubt: bootstrap intervals over rows or groups of rows."""

import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

# Kendall's tau-b: ties are common among ratings.
CORRELATIONS = {
    "pearson": "pearsonr",
    "spearman": "spearmanr",
    "kendall": "kendalltau",
}
"""Coefficients, and the functions of `scipy.stats` that have them."""
RESAMPLES = 2000
BLOCKS = 200
LEVEL = 0.95
METHOD = "95 %, BCa bootstrap"
Interval = tuple[float, float]


@dataclass(frozen=True)
class Bootstrap:
    """S statistics of some rows: `found_S` of all, `drawn_RS` of resamples, `without_BS` of all but
    a block. nan where a statistic is undefined.
    """

    found_S: np.ndarray
    drawn_RS: np.ndarray
    without_BS: np.ndarray

    def interval(self, number: int = 0) -> Interval:
        """The 95 % BCa interval of a statistic: percentiles of its resamples, moved for their bias
        and for the skewness of what the rows contribute. Percentiles alone are too low where rows
        have a long tail above. (nan, nan) where it is undefined.

        Source: Efron, Better bootstrap confidence intervals, 1987; bias and acceleration are those
        of scipy.stats.bootstrap, which knows no groups and takes memory of rows squared.
        """
        from scipy.special import ndtr, ndtri

        found = self.found_S[number]
        drawn, without = (_defined(part[:, number]) for part in (self.drawn_RS, self.without_BS))
        if np.isnan(found) or not len(drawn):
            return float("nan"), float("nan")
        # Half of the ties, also of those that a sum's last digit tells apart.
        ties = np.isclose(drawn, found, rtol=1e-12, atol=0)
        below = ((drawn < found) & ~ties).mean() + ties.mean() / 2
        least = 0.5 / len(drawn)  # else an estimate beyond all that was drawn would be at infinity
        bias = ndtri(np.clip(below, least, 1 - least))
        quantiles = bias + ndtri([(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        ends = ndtr(bias + quantiles / (1 - _acceleration(without) * quantiles))
        low, high = np.quantile(drawn, ends)
        return float(low), float(high)


def bootstrap(
    statistics: Callable[[np.ndarray], Sequence[float]],
    rows: int,
    groups: Sequence[Hashable] | None = None,
    seed: int = 0,
    count: int = RESAMPLES,
) -> Bootstrap:
    """`statistics` of row numbers, on the same resamples of rows or of their `groups`."""
    drawn = [statistics(places) for places in resamples(rows, groups, seed, count)]
    without = [statistics(places) for places in _all_but_a_block(rows, groups)]
    found = np.asarray(statistics(np.arange(rows)), float)
    return Bootstrap(found, np.array(drawn), np.array(without).reshape(-1, len(found)))


def mean_interval(values: Sequence[float], groups: Sequence[Hashable] | None = None) -> Interval:
    """The 95 % BCa bootstrap interval of the mean."""
    data = np.asarray(values, dtype=np.float64)
    return bootstrap(lambda rows: [data[rows].mean()], len(data), groups).interval()


def statistic_interval(
    statistic: Callable[[np.ndarray], float], data: np.ndarray, count: int = RESAMPLES
) -> Interval:
    """The 95 % BCa bootstrap interval of a statistic of `data`'s rows; resamples for which it is
    undefined (nan) are left out.
    """
    return bootstrap(lambda rows: [statistic(data[rows])], len(data), count=count).interval()


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


def known(value: float) -> float | None:
    """None for nan, which JSON does not have."""
    return None if np.isnan(value) else float(value)


def correlation(name: str, data: np.ndarray) -> float:
    """One coefficient of the two columns of `data`; nan where either is constant."""
    from scipy import stats

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.ConstantInputWarning)
        return float(getattr(stats, CORRELATIONS[name])(data[:, 0], data[:, 1]).statistic)


def members(groups: Sequence[Hashable]) -> list[np.ndarray]:
    """The numbers of the rows of each group, groups in the order they come."""
    found: dict[Hashable, list[int]] = {}
    for row, group in enumerate(groups):
        found.setdefault(group, []).append(row)
    return [np.array(numbers) for numbers in found.values()]


def _all_but_a_block(rows: int, groups: Sequence[Hashable] | None) -> Iterator[np.ndarray]:
    """Row numbers without one row or group, for each in turn; without one block of them, drawn,
    where there are more than `BLOCKS`: their skewness says the same (Efron and Tibshirani, An
    introduction to the bootstrap, 1993, section 11.5) and takes no longer than the resamples.
    """
    units = [np.array([row]) for row in range(rows)] if groups is None else members(groups)
    if len(units) < 2:
        return
    block_of_row = np.empty(rows, int)
    order = np.random.default_rng(0).permutation(len(units))
    for unit, place in zip(units, order, strict=True):
        block_of_row[unit] = place % BLOCKS
    for block in range(min(len(units), BLOCKS)):
        yield np.flatnonzero(block_of_row != block)


def _acceleration(without: np.ndarray) -> float:
    """The skewness of the statistic, from what it is without each block; 0 where nothing varies."""
    gaps = without.mean() - without if len(without) else np.zeros(1)
    spread = np.abs(gaps).max()
    if spread <= 1e-12 * max(np.abs(without).max(initial=0), 1e-300):
        return 0.0
    gaps = gaps / spread
    return float((gaps**3).sum() / (6 * (gaps**2).sum() ** 1.5))


def _defined(values: np.ndarray) -> np.ndarray:
    return values[~np.isnan(values)]
