"""Whether two systems differ: paired bootstrap resampling over the rows both answered.

Source: Koehn, Statistical significance tests for machine translation evaluation, 2004; the p-value
is that of sacrebleu, which centres the resampled differences (Riezler and Maxwell 2005).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tasks.scoring.doubt.statistics import interval, resamples
from tasks.scoring.overlap.scores import PLAIN, Manner, columns, figure, streams

RESAMPLES = 1000
SEED = 12345


def paired_tests(
    systems: tuple[Sequence[str], Sequence[str]],
    references: Sequence[Sequence[str]],
    metrics: Sequence[str],
    manner: Manner = PLAIN,
) -> dict[str, dict[str, Any]]:
    """Per metric `{difference, interval, p, resamples}` of the first system over the second.

    BLEU and chrF are counted again on each resample, the others averaged; of ROUGE and BERTScore it
    is the F-measure.
    """
    found = {}
    for metric in metrics:
        if metric in ("bleu", "chrf", "chrf++"):
            drawn, real = _corpus_draws(metric, systems, references)
        else:
            both = [columns(system, references, [metric], manner)[metric] for system in systems]
            drawn, real = mean_draws(*([figure(v) for v in column.rows] for column in both))
        found[metric] = summary(drawn, real)
    return found


def mean_draws(first: Sequence[float], second: Sequence[float]) -> tuple[np.ndarray, float]:
    """Resampled differences of two means over the same rows, and the real one."""
    gaps = np.asarray(first) - np.asarray(second)
    drawn = [gaps[rows].mean() for rows in resamples(len(gaps), seed=SEED, count=RESAMPLES)]
    return np.array(drawn), float(gaps.mean())


def summary(drawn: np.ndarray, real: float) -> dict[str, Any]:
    """The difference with its 95 % interval and how likely one as large is by chance alone."""
    extreme = np.abs(drawn - drawn.mean()) >= abs(real)
    p = float((extreme.sum() + 1) / (len(drawn) + 1))
    return {
        "difference": real,
        "interval": list(interval(drawn.tolist())),
        "p": p,
        "resamples": len(drawn),
    }


def _corpus_draws(
    metric: str, systems: tuple[Sequence[str], Sequence[str]], references: Sequence[Sequence[str]]
) -> tuple[np.ndarray, float]:
    """The same of a corpus score, from the counts that sacrebleu takes of each row."""
    from sacrebleu.metrics import BLEU, CHRF

    engine: Any = BLEU() if metric == "bleu" else CHRF(word_order=2 if metric == "chrf++" else 0)
    counts = [
        np.array(engine._extract_corpus_statistics(list(system), streams(references)), np.float64)
        for system in systems
    ]

    def gap(rows: np.ndarray | slice) -> float:
        first, second = (
            engine._compute_score_from_stats(count[rows].sum(0).tolist()).score for count in counts
        )
        return float(first - second)

    rows = resamples(len(references), seed=SEED, count=RESAMPLES)
    return np.array([gap(drawn) for drawn in rows]), gap(slice(None))
