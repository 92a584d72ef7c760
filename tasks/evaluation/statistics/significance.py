"""Whether two systems differ: paired bootstrap resampling over the rows both answered.

Source: Koehn, Statistical significance tests for machine translation evaluation, 2004; the p-value
is that of sacrebleu, which centres the resampled differences (Riezler and Maxwell 2005).
"""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from tasks.evaluation.overlap.scores import PLAIN, Column, Manner, columns
from tasks.evaluation.statistics.intervals import interval, resamples

RESAMPLES = 1000
SEED = 12345


def paired_tests(
    systems: tuple[Sequence[str], Sequence[str]],
    references: Sequence[Sequence[str]],
    metrics: Sequence[str],
    manner: Manner = PLAIN,
    groups: Sequence[Hashable] | None = None,
) -> dict[str, dict[str, Any]]:
    """Per metric `{difference, interval, p, resamples, signature}` of the first system over the
    second.

    BLEU and chrF are counted again on each resample, the others averaged; of ROUGE and BERTScore it
    is the F-measure. With `groups` (documents, say), whole groups are drawn.
    """
    first, second = (columns(system, references, metrics, manner) for system in systems)
    drawn: dict[str, list[float]] = {metric: [] for metric in first}
    for rows in resamples(len(references), groups, SEED, RESAMPLES):
        for metric, values in drawn.items():
            values.append(_gap(first[metric], second[metric], rows))
    return {
        metric: _summary(np.array(values), _gap(first[metric], second[metric]))
        | {"signature": first[metric].signature}
        for metric, values in drawn.items()
    }


def _gap(first: Column, second: Column, rows: np.ndarray | slice = slice(None)) -> float:
    return first.figure(rows) - second.figure(rows)


def _summary(drawn: np.ndarray, real: float) -> dict[str, Any]:
    """The difference with its 95 % interval and how likely one as large is by chance alone."""
    extreme = np.abs(drawn - drawn.mean()) >= abs(real)
    # Plus one: so few resamples cannot show a p of 0.
    p = float((extreme.sum() + 1) / (len(drawn) + 1))
    return {
        "difference": real,
        "interval": list(interval(drawn.tolist())),
        "p": p,
        "resamples": len(drawn),
    }
