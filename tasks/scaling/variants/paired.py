"""Which of several variants is better, told from the same seeds in each: paired t tests.

The test is Student's for pairs (The probable error of a mean, Biometrika 1908), one-sided: how
likely is a difference this good, over the seeds, if the variant were no better? Several comparisons
share one error rate by Holm's step-down (A simple sequentially rejective multiple test procedure,
Scandinavian Journal of Statistics 1979).

Assumed is that a pair's two runs differ in nothing but what was varied, and that the differences
are independent from seed to seed and about normal. What all seeds share, the text above all, is not
varied: another text may say otherwise.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LEVEL = 0.01  # of error, in calling a variant better
CONFIDENCE = 0.95  # of intervals
TEST = (
    "better than each other variant that has every seed, by a one-sided paired t test over seeds "
    f"at {LEVEL}, corrected for the number of comparisons (Holm)"
)
Figures = Mapping[int, float]  # by seed; lower is better
Interval = tuple[float, float]


@dataclass(frozen=True)
class Difference:
    """The mean over `n` seeds of one variant's figure less another's; `p` is of it being lower.

    `interval` is None with fewer than two seeds, and `p` also where no figure depends on the seed.
    """

    n: int
    mean: float
    interval: Interval | None
    p: float | None

    def __str__(self) -> str:
        between = "" if self.interval is None else " [{:+.3g}, {:+.3g}]".format(*self.interval)
        told = "" if self.p is None else f", p {probability(self.p)}"
        return f"{self.n} seed{'s' * (self.n > 1)}, difference {self.mean:+.3g}{between}{told}"


def mean_interval(values: Sequence[float]) -> tuple[float, Interval | None]:
    """The mean, and its 95 % interval by Student's t; None for a single value."""
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, None
    from scipy.special import stdtrit

    reach = stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2) * _error(values, mean)
    return mean, (float(mean - reach), float(mean + reach))


def difference(mine: Figures, others: Figures) -> Difference | None:
    """Of the seeds that both have; None when they have none in common."""
    seeds = sorted(mine.keys() & others.keys())
    if not seeds:
        return None
    gaps = [mine[seed] - others[seed] for seed in seeds]
    mean, interval = mean_interval(gaps)
    varies = len({mine[s] for s in seeds}) > 1 or len({others[s] for s in seeds}) > 1
    # Where no seed changes anything, many are no more than one; unless nothing differs at all.
    p = _lower(gaps, mean) if len(gaps) > 1 and (varies or not any(gaps)) else None
    return Difference(len(gaps), mean, interval, p)


def _lower(gaps: Sequence[float], mean: float) -> float:
    """The probability of a mean this low if it were 0 in truth."""
    from scipy.special import stdtr

    error = _error(gaps, mean)
    if error == 0:
        return 1.0 if mean >= 0 else 0.0
    return float(stdtr(len(gaps) - 1, mean / error))


def _error(values: Sequence[float], mean: float) -> float:
    """The standard error of the mean; none for values that are all the same."""
    if min(values) == max(values):
        return 0.0
    squares = math.fsum((value - mean) ** 2 for value in values)
    return math.sqrt(squares / (len(values) - 1) / len(values))


def holm(probabilities: Sequence[float]) -> list[float]:
    """The probabilities, raised so that each may be held against the level of all together."""
    order = sorted(range(len(probabilities)), key=probabilities.__getitem__)
    found, least = [0.0] * len(order), 0.0
    for rank, place in enumerate(order):
        least = max(least, min(1.0, (len(order) - rank) * probabilities[place]))
        found[place] = least
    return found


def better(differences: Sequence[Difference]) -> list[bool]:
    """Which of some comparisons show a lower figure, at one level for all of them together."""
    known = [1.0 if one.p is None else one.p for one in differences]
    return [p <= LEVEL for p in holm(known)]


def best(variants: Mapping[str, Figures]) -> tuple[str | None, str]:
    """The variant with a lower figure than each of the others; None with the reason in words.

    Only variants with every seed can be best, or stand in its way.
    """
    seeds = {seed for figures in variants.values() for seed in figures}
    whole = {name: figures for name, figures in variants.items() if seeds and seeds == set(figures)}
    if len(whole) < 2:
        left = f"only {next(iter(whole))} was" if whole else "no variant was"
        return None, f"{left} trained to the end with every seed: there is nothing to compare"
    first = min(whole, key=lambda name: math.fsum(whole[name].values()))
    others = {n: d for n in whole if n != first and (d := difference(whole[first], whole[n]))}
    doubts = [n for n, sure in zip(others, better(list(others.values())), strict=True) if not sure]
    if not doubts:
        return first, ""
    closest = max(doubts, key=lambda name: others[name].p or 0.0)
    return None, _doubt(first, closest, others[closest], len(others))


def _doubt(first: str, closest: str, gap: Difference, comparisons: int) -> str:
    if gap.n == 1:
        return "one seed: no spread is known, add --seeds 5"
    if gap.p is None:
        return f"no figure depends on the seed, so no spread is known: {gap}"
    held = f" of {comparisons} comparisons (Holm)" if comparisons > 1 else ""
    return f"{first} is not shown to be better than {closest}: {gap}; {LEVEL}{held} is asked for"


def probability(p: float) -> str:
    """.31, .004, <.001."""
    if p < 0.001:
        return "<.001"
    text = f"{p:.2f}" if p >= 0.095 else f"{p:.2g}"
    return text.removeprefix("0") if p < 0.995 else "1"
