"""ROUGE as ROUGE-1.5.5 defines it: N, L, Lsum (union LCS), W, S and SU.

Source: Lin, ROUGE: a package for automatic evaluation of summaries, 2004. All texts are coded once
(`tokens`), words by their stems where asked; `rouge_kernels` then compares arrays of integers.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import numpy as np

from tasks.evaluation.overlap.rouge_kernels import (
    lcs_hits,
    ngram_hits,
    skip_hits,
    sort_texts,
    union_lcs_hits,
    weighted_hits,
)
from tasks.evaluation.overlap.stemmer import SIGNATURE as STEMMER
from tasks.evaluation.overlap.tokens import Script, Texts, encode, rouge_form
from tasks.evaluation.overlap.wordnet import irregular_forms

W_POWER = 1.2
PARTS = ("precision", "recall", "fmeasure")
Formula = Literal["best", "A", "B"]


def rouge(
    predictions: Sequence[str],
    references: Sequence[Sequence[str]],
    metrics: Sequence[str],
    stem: bool = False,
    formula: Formula = "best",
    script: Script = "unicode",
) -> list[dict[str, dict[str, float]]]:
    """Per row and metric `{precision, recall, fmeasure}`, 0-1.

    With several references, formula `best` takes the one with the highest F-measure, as rouge-score
    does; `A` adds up the counts over all references and `B` takes the one with the highest recall,
    as ROUGE-1.5.5 does with `-f A` and `-f B`. These two replace irregular forms before stemming,
    as it does, where WordNet's lists are installed; the signature says so.
    """
    if not predictions:
        return []
    form = rouge_form(_irregular(formula)) if stem else None
    texts = encode([*predictions, *(text for row in references for text in row)], form, script)
    counts = np.array([len(row) for row in references])
    rows = np.repeat(np.arange(len(predictions)), counts)
    pairs = np.stack([rows, len(predictions) + np.arange(len(rows))], axis=1)
    columns = {m: _column(m, METRICS[m](texts, pairs), counts, formula) for m in metrics}
    return [
        {m: dict(zip(PARTS, values[i], strict=True)) for m, values in columns.items()}
        for i in range(len(predictions))
    ]


def signature(
    metric: str, stem: bool, formula: Formula = "best", script: Script = "unicode"
) -> str:
    """All that a ROUGE value depends on besides the texts."""
    details = {"rougeW": f"|weight:{W_POWER}", "rougeS": "|skip:unlimited", "rougeSU4": "|skip:4"}
    stemming = STEMMER if stem else "no"
    if stem and _irregular(formula):
        stemming += "+wordnet-exceptions"
    parts = f"{metric}|words:{script}|stem:{stemming}|refs:{formula}{details.get(metric, '')}"
    return f"{parts}|headrace:2"


def _irregular(formula: Formula) -> dict[str, str]:
    return {} if formula == "best" else irregular_forms()


def _column(
    metric: str, hits: np.ndarray, counts: np.ndarray, formula: Formula
) -> list[list[float]]:
    """Precision, recall and F-measure of each row, from the hits of its references."""
    first = np.concatenate(([0], np.cumsum(counts)[:-1]))
    if formula == "A":
        return _scores(metric, np.add.reduceat(hits, first)).tolist()
    scores = _scores(metric, hits)
    ranked = scores[:, 1 if formula == "B" else 2]
    top = np.maximum.reduceat(ranked, first)
    rows = np.repeat(np.arange(len(counts)), counts)
    winners = np.flatnonzero(ranked == top[rows])
    chosen = winners[np.unique(rows[winners], return_index=True)[1]]  # the first of equals
    return scores[chosen].tolist()


def _scores(metric: str, hits: np.ndarray) -> np.ndarray:
    """Precision, recall and their harmonic mean; 0 where nothing could match."""
    matched, predicted, referred = hits.T
    precision, recall = _ratio(matched, predicted), _ratio(matched, referred)
    if metric == "rougeW":  # its weights are undone after the division: equations 14 and 15
        precision, recall = precision ** (1 / W_POWER), recall ** (1 / W_POWER)
    fmeasure = _ratio(2 * precision * recall, precision + recall)
    return np.stack([precision, recall, fmeasure], axis=1)


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


def _ngrams(texts: Texts, pairs: np.ndarray, n: int) -> np.ndarray:
    """Hits of n-grams, each of which gets an integer key, `[pairs, 3]`."""
    keys, size = texts.codes, texts.vocabulary
    for shorter in range(1, n):  # an n-gram is an (n - 1)-gram and a word
        if shorter > 1:
            keys = np.unique(keys, return_inverse=True)[1].astype(np.int64)
        keys = keys[:-1] * size + texts.codes[shorter:]
    starts = texts.texts[:-1]
    ends = np.maximum(texts.texts[1:] - n + 1, starts)
    keys, out = keys.copy(), np.empty((len(pairs), 3))
    sort_texts(keys, starts, ends)
    ngram_hits(keys, starts, ends, pairs, out)
    return out


def _skip(texts: Texts, pairs: np.ndarray, reach: int = 0, unigrams: bool = False) -> np.ndarray:
    out = np.empty((len(pairs), 3))
    skip_hits(texts.codes, texts.texts, pairs, texts.vocabulary, reach, unigrams, out)
    return out


def _longest(texts: Texts, pairs: np.ndarray) -> np.ndarray:
    out = np.empty((len(pairs), 3))
    lcs_hits(texts.codes, texts.texts, pairs, out)
    return out


def _longest_union(texts: Texts, pairs: np.ndarray) -> np.ndarray:
    out, t = np.empty((len(pairs), 3)), texts
    union_lcs_hits(t.codes, t.texts, t.sentences, t.lines, pairs, t.vocabulary, out)
    return out


def _weighted(texts: Texts, pairs: np.ndarray) -> np.ndarray:
    out = np.empty((len(pairs), 3))
    weighted_hits(texts.codes, texts.texts, pairs, W_POWER, out)
    return out


METRICS: dict[str, Callable[[Texts, np.ndarray], np.ndarray]] = {
    "rouge1": partial(_ngrams, n=1),
    "rouge2": partial(_ngrams, n=2),
    "rouge3": partial(_ngrams, n=3),
    "rouge4": partial(_ngrams, n=4),
    "rougeL": _longest,
    "rougeLsum": _longest_union,
    "rougeW": _weighted,
    "rougeS": _skip,
    "rougeSU4": partial(_skip, reach=5, unigrams=True),
}
