"""Figures of texts that were written, beside those of what anyone could have written."""

import re
from collections.abc import Sequence

from tasks.evaluation.overlap.scores import figure, score
from tasks.tuning.text_to_text.rows import TextPair

LEAD = 3


def translation(rows: Sequence[TextPair], texts: Sequence[str]) -> dict[str, float]:
    """`bleu` and `chrf`, and those of the sources as they are (`bleu_copy`)."""
    found = _scores(rows, texts, ("bleu", "chrf"))
    copied = _scores(rows, [row.source for row in rows], ("bleu", "chrf"))
    return found | {f"{name}_copy": value for name, value in copied.items()}


def summary(rows: Sequence[TextPair], texts: Sequence[str]) -> dict[str, float]:
    """`rouge1`, `rouge2`, `rougeL` (F), and those of each source's first sentences
    (`rouge1_lead`).
    """
    metrics = ("rouge1", "rouge2", "rougeL")
    found = _scores(rows, texts, metrics)
    lead = _scores(rows, [first_sentences(row.source) for row in rows], metrics)
    return found | {f"{name}_lead": value for name, value in lead.items()}


def first_sentences(text: str) -> str:
    """The first `LEAD` sentences, or lines, of a text."""
    parts = [part for part in re.split(r"(?<=[.!?])\s+|\n+", text) if part.strip()]
    return " ".join(parts[:LEAD])


def _scores(
    rows: Sequence[TextPair], texts: Sequence[str], metrics: Sequence[str]
) -> dict[str, float]:
    references = [list(row.targets) for row in rows]
    return {name: figure(v) for name, v in score(texts, references, metrics)["corpus"].items()}
