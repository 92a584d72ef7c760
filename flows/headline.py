"""The few figures of a run that stand for it, where there is room for a few."""

from collections.abc import Mapping
from fnmatch import fnmatchcase

MOST = 8
FIRST = (
    "bits_per_byte",
    "bits_per_byte_witten_bell",
    "accuracy",
    "accuracy_majority",
    "label.f1",
    "label.f1_majority",
    "extract.f1",
    "extract.f1_baseline",
    "regress.pearson",
    "translate.chrf",
    "translate.chrf_copy",
    "summarise.rougeL",
    "summarise.rougeL_lead",
    "dense/*.accuracy",
    "dense/*.accuracy_majority",
    "dense/*.mse",
    "dense/*.mse_mean",
    "forecast.forecast_error",
    "exam/*.accuracy",
    "exam/*.acc",
    "exam/*.exact_match*",
    "judge_geval_*",
    "word_scores.*",
    "heldout_loss",
    "unigram_loss",
    "answers_chrf",
    "pretrain.params",
    "redact.rows_out",
    "read.rows_out",
)
"""The most telling first, each beside what it is to be compared with."""


def headline(metrics: Mapping[str, float]) -> dict[str, float]:
    """The first of a run's figures, in order; any where none of them is known."""
    names = [name for pattern in FIRST for name in sorted(metrics) if fnmatchcase(name, pattern)]
    return {name: metrics[name] for name in (names or [*metrics])[:MOST]}
