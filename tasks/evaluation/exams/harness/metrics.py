"""How answers to a task of lm-evaluation-harness are graded, and put together to figures.

Source: lm-evaluation-harness 0.4.13, `ConfigurableTask.process_results` and `lm_eval/api/metrics`.
A row's grade is a number, or counts that are added up over rows before a figure is made of them;
so every figure has its bootstrap interval.
"""

import math
import re
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tasks.evaluation.overlap.scores import Column, columns

PLAIN = ("mean", "nanmean")
Counts = list[float]


@dataclass(frozen=True)
class MetricInfo:
    """One metric: the output types it is for, what puts its rows together, and the direction."""

    outputs: tuple[str, ...]
    aggregations: tuple[str, ...] = PLAIN
    higher: bool = True


CHOICE, LIKELY, ROLLING, WRITTEN = (
    "multiple_choice",
    "loglikelihood",
    "loglikelihood_rolling",
    "generate_until",
)
METRICS: dict[str, MetricInfo] = {
    "acc": MetricInfo((CHOICE, LIKELY)),
    "acc_norm": MetricInfo((CHOICE,)),
    "acc_bytes": MetricInfo((CHOICE,)),
    "acc_mutual_info": MetricInfo((CHOICE,)),
    "exact_match": MetricInfo((CHOICE, WRITTEN)),
    "f1": MetricInfo((CHOICE,), ("f1",)),
    "mcc": MetricInfo((CHOICE,), ("matthews_corrcoef",)),
    "brier_score": MetricInfo((CHOICE,), ("brier_score",), higher=False),
    "perplexity": MetricInfo((LIKELY,), ("perplexity",), higher=False),
    "word_perplexity": MetricInfo((ROLLING,), ("weighted_perplexity",), higher=False),
    "byte_perplexity": MetricInfo((ROLLING,), ("weighted_perplexity",), higher=False),
    "bits_per_byte": MetricInfo((ROLLING,), ("bits_per_byte",), higher=False),
    "bleu": MetricInfo((WRITTEN,), ("bleu",)),
    "chrf": MetricInfo((WRITTEN,), ("chrf",)),
    "chrf++": MetricInfo((WRITTEN,), ("chrf++",)),
    "ter": MetricInfo((WRITTEN,), ("ter",), higher=False),
}
DEFAULTS: dict[str, tuple[str, ...]] = {
    LIKELY: ("perplexity", "acc"),
    ROLLING: ("word_perplexity", "byte_perplexity", "bits_per_byte"),
    CHOICE: ("acc", "acc_norm"),
    WRITTEN: ("exact_match",),
}
ONE_GOLD = ("f1", "mcc", "brier_score")
"""Metrics of rows with one right choice."""
SHARES = ("acc", "acc_norm", "acc_bytes", "acc_mutual_info", "exact_match")


def choice_grades(
    nats: Sequence[float],
    greedy: Sequence[bool],
    choices: Sequence[str],
    gold: Sequence[int],
    alone: Sequence[float] | None,
) -> dict[str, Any]:
    """The grades of one row with choices, of which any of `gold` is right, by metric.

    `alone` are the log-probabilities of the choices behind nothing, for `acc_mutual_info`. Of
    choices that are equally likely the first is taken, as numpy's argmax does. `f1`, `mcc` and
    `brier_score` are of the first of `gold`.
    """
    found = np.array(nats)
    sizes = np.array([float(len(choice)) for choice in choices])
    sizes_bytes = np.array([float(len(choice.encode())) for choice in choices])
    taken = int(np.argmax(found))
    exps = np.exp(found - found.max())
    wanted = np.eye(len(choices))[gold[0]]
    grades = {
        "acc": float(taken in gold),
        "acc_norm": float(int(np.argmax(found / sizes)) in gold),
        "acc_bytes": float(int(np.argmax(found / sizes_bytes)) in gold),
        "exact_match": float(any(greedy[one] for one in gold)),
        "f1": (gold[0], taken),
        "mcc": (gold[0], taken),
        "brier_score": float(((exps / exps.sum() - wanted) ** 2).sum()),
    }
    if alone is not None:
        grades["acc_mutual_info"] = float(int(np.argmax(found - np.array(alone))) in gold)
    return grades


def rolling_grades(nats: float, text: str) -> dict[str, Any]:
    """The grades of one text: its log-probability in nats, with its words or its bytes."""
    words, size = float(len(re.split(r"\s+", text))), float(len(text.encode()))
    by_bytes = (nats, size)
    return {
        "word_perplexity": (nats, words),
        "byte_perplexity": by_bytes,
        "bits_per_byte": by_bytes,
    }


def exact_match(
    said: str,
    targets: Sequence[str],
    *,
    ignore_case: bool,
    ignore_punctuation: bool,
    ignore_numbers: bool,
    regexes_to_ignore: Sequence[str],
) -> float:
    """Whether an answer is one of its targets."""

    def plain(text: str) -> str:
        for pattern in regexes_to_ignore:
            text = re.sub(pattern, "", text)
        text = text.lower() if ignore_case else text
        left_out = string.punctuation * ignore_punctuation + string.digits * ignore_numbers
        return text.translate(str.maketrans("", "", left_out))

    return float(plain(said) in {plain(target) for target in targets})


def column(metric: str, grades: Sequence[Any]) -> Column:
    """The figure of many rows' grades by one metric. Raises ValueError for grades that it cannot
    put together.
    """
    if metric in COUNTED:
        return COUNTED[metric](metric, grades)
    if metric in WRITTEN_WHOLE:
        said, references = zip(*grades, strict=True)
        return columns(list(said), list(references), [metric])[metric]
    share = "share of " if metric in SHARES else ""
    return Column([float(one) for one in grades], f"{share}{metric}")


def _summed(
    metric: str, rows: Sequence[Counts], total: Callable[[Sequence[float]], float]
) -> Column:
    return Column([total(row) for row in rows], metric, np.array(rows, float), total)


def _perplexity(metric: str, grades: Sequence[float]) -> Column:
    """exp of the mean of minus the log-probability."""
    return _summed(metric, [[nats, 1.0] for nats in grades], _exp)


def _weighted(metric: str, grades: Sequence[tuple[float, float]]) -> Column:
    """exp of minus the log-probability of a word, or byte."""
    return _summed(metric, [[*one] for one in grades], _exp)


def _bits(metric: str, grades: Sequence[tuple[float, float]]) -> Column:
    def bits(total: Sequence[float]) -> float:
        return -total[0] / math.log(2) / (total[1] or 1.0)

    return _summed(metric, [[*one] for one in grades], bits)


def _exp(total: Sequence[float]) -> float:
    return math.exp(min(-total[0] / (total[1] or 1.0), 700.0))


def _f1(metric: str, grades: Sequence[tuple[int, int]]) -> Column:
    """F1 of class 1 of two, from true positives, false positives and false negatives."""
    if (most := max(max(pair) for pair in grades)) > 1:
        raise ValueError(f"f1 is of two classes, 0 and 1; a row has class {most}")

    def f1(total: Sequence[float]) -> float:
        hits, others = total[0], total[1] + total[2]
        return 2 * hits / (2 * hits + others) if hits or others else 0.0

    rows = [
        [float(gold and taken), float(taken > gold), float(gold > taken)] for gold, taken in grades
    ]
    return _summed(metric, rows, f1)


def _mcc(metric: str, grades: Sequence[tuple[int, int]]) -> Column:
    """Matthews' correlation, of any number of classes (Gorodkin 2004), of the confusion matrix."""
    classes = 1 + max(max(pair) for pair in grades)
    flat = np.zeros((len(grades), classes * classes))
    flat[np.arange(len(grades)), [gold * classes + taken for gold, taken in grades]] = 1.0

    def mcc(total: Sequence[float]) -> float:
        table = np.array(total).reshape(classes, classes)
        n, golds, takens = table.sum(), table.sum(1), table.sum(0)
        above = table.trace() * n - golds @ takens
        below = (n**2 - takens @ takens) * (n**2 - golds @ golds)
        return float(above / math.sqrt(below)) if below else 0.0

    return _summed(metric, flat.tolist(), mcc)


COUNTED: Mapping[str, Callable[[str, Any], Column]] = {
    "perplexity": _perplexity,
    "word_perplexity": _weighted,
    "byte_perplexity": _weighted,
    "bits_per_byte": _bits,
    "f1": _f1,
    "mcc": _mcc,
}
WRITTEN_WHOLE = ("bleu", "chrf", "chrf++", "ter")
