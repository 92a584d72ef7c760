"""Whether two systems differ: paired bootstrap resampling over the rows both answered.

Source: Koehn, Statistical significance tests for machine translation evaluation, 2004; the p-value
is that of sacrebleu, which centres the resampled differences (Riezler and Maxwell 2005).
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from tasks.evaluation.overlap.scores import LOWER_IS_BETTER, Column
from tasks.evaluation.statistics.intervals import Bootstrap, bootstrap

RESAMPLES = 1000
SEED = 12345
LEVEL = 0.05


def paired_tests(
    first: Mapping[str, Column],
    second: Mapping[str, Column],
    groups: Sequence[Hashable] | None = None,
) -> dict[str, dict[str, Any]]:
    """Per metric `{difference, interval, p, resamples, signature}` of the first system over the
    second, from their columns of the same rows.

    BLEU, chrF and TER are counted again on each resample, the others averaged; of ROUGE and
    BERTScore it is the F-measure. With `groups` (documents, say), whole groups are drawn. The
    interval is a BCa one.
    """

    def gaps(rows: np.ndarray) -> list[float]:
        return [first[m].figure(rows) - second[m].figure(rows) for m in first]

    n = len(next(iter(first.values())).rows)
    drawn = bootstrap(gaps, n, groups, SEED, RESAMPLES)
    return {
        metric: _summary(drawn, number) | {"signature": column.signature}
        for number, (metric, column) in enumerate(first.items())
    }


def best_systems(
    systems: Mapping[str, Mapping[str, Column]], groups: Sequence[Hashable] | None = None
) -> dict[str, dict[str, Any]]:
    """Per metric the `first` system and the `next` one, the paired test between them, and `best`:
    the first where the test says that it is better (p under 0.05, and 0 outside the interval, which
    of few rows is the more careful), else None.
    """
    found: dict[str, dict[str, Any]] = {}
    for metric in next(iter(systems.values())):
        sign = 1 if metric in LOWER_IS_BETTER else -1
        ranked = sorted(systems, key=lambda name: sign * systems[name][metric].figure())
        a, b = ranked[:2]
        one, other = ({metric: systems[name][metric]} for name in (a, b))
        test = paired_tests(one, other, groups)[metric]
        low, high = test["interval"]
        sure = test["p"] < LEVEL and (low > 0 or high < 0)
        found[metric] = {"best": a if sure else None, "first": a, "next": b, **test}
    return found


def _summary(drawn: Bootstrap, number: int) -> dict[str, Any]:
    """The difference with its 95 % interval and how likely one as large is by chance alone."""
    real, values = float(drawn.found_S[number]), drawn.drawn_RS[:, number]
    extreme = np.abs(values - values.mean()) >= abs(real)
    # Plus one: so few resamples cannot show a p of 0.
    p = float((extreme.sum() + 1) / (len(values) + 1))
    ends = list(drawn.interval(number))
    return {"difference": real, "interval": ends, "p": p, "resamples": len(values)}
