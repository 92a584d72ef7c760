"""Scores of predictions against references: BLEU, chrF, ROUGE, METEOR, BERTScore.

    headrace score FILE.jsonl --metrics bleu,rougeL --json

BLEU and chrF are sacrebleu's, 0-100; the others are ours, 0-1. Every metric carries a signature:
all that its value depends on besides the texts.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cluster.errors import BadInput
from cluster.settings import nearest
from tasks.scoring.overlap import meteor, rouge
from tasks.scoring.overlap.tokens import Script

Value = float | dict[str, float]
Predictions = Sequence[str]
References = Sequence[Sequence[str]]
METRICS = ("bleu", *rouge.METRICS, "meteor", "chrf", "chrf++", "exact", "bertscore", "learned")


@dataclass(frozen=True)
class Column:
    """One metric: its corpus value, the value of each row, its signature."""

    corpus: Value
    rows: list[Value]
    signature: str


@dataclass(frozen=True)
class Manner:
    """How the metrics that leave a choice are counted.

    `stem`, `formula` and `script` are ROUGE's; `synonyms` adds METEOR's WordNet stage; `encoder`
    (a model folder), `layer`, `baseline` and `idf` are BERTScore's; `learned` is the file of a
    metric made by `headrace learn`.
    """

    stem: bool = False
    formula: rouge.Formula = "best"
    script: Script = "unicode"
    synonyms: bool = False
    encoder: Path | None = None
    layer: int | None = None
    baseline: Path | None = None
    idf: bool = False
    learned: Path | None = None


PLAIN = Manner()


def score(
    predictions: Predictions,
    references: References,
    metrics: Sequence[str],
    manner: Manner = PLAIN,
) -> dict[str, Any]:
    """`{"corpus": {metric: value}, "rows": [{metric: value}], "signatures": {metric: text}}`.

    A value is a float, or `{precision, recall, fmeasure}` for ROUGE and BERTScore. `corpus` is the
    corpus score of BLEU and chrF and the mean over rows of the others.
    Raises BadInput for an unknown metric or a row without references.
    """
    found = columns(predictions, references, metrics, manner)
    return {
        "corpus": {m: found[m].corpus for m in metrics},
        "rows": [{m: found[m].rows[i] for m in metrics} for i in range(len(predictions))],
        "signatures": {m: found[m].signature for m in metrics},
    }


def columns(
    predictions: Predictions,
    references: References,
    metrics: Sequence[str],
    manner: Manner = PLAIN,
) -> dict[str, Column]:
    """The same by metric."""
    check_metrics(metrics, manner)
    if len(predictions) != len(references) or not all(references):
        raise BadInput(
            f"{len(predictions)} predictions, {len(references)} lists of references, "
            f"{sum(not row for row in references)} of them empty; every row needs one or more"
        )
    found: dict[str, Column] = {}
    if wanted := [m for m in metrics if m in rouge.METRICS]:
        found |= _rouge(predictions, references, wanted, manner)
    for metric in metrics:
        if metric in OTHERS:
            found[metric] = OTHERS[metric](predictions, references, manner)
    return found


def check_metrics(metrics: Sequence[str], manner: Manner = PLAIN) -> None:
    """Raise BadInput for a metric that is unknown or cannot be counted in this manner."""
    for metric in metrics:
        if metric not in METRICS:
            raise BadInput(f"unknown metric '{metric}'; {nearest(metric, METRICS)}")
    if "bertscore" in metrics and manner.encoder is None:
        raise BadInput(
            "bertscore needs an encoder: name a model folder with --encoder, and --layer N; "
            f"or choose from {', '.join(m for m in METRICS if m not in ('bertscore', 'learned'))}"
        )
    if "learned" in metrics and manner.learned is None:
        raise BadInput("learned needs a metric: make one with `headrace learn`, name it: --learned")
    if not metrics:
        raise BadInput(f"no metric given; choose from {', '.join(METRICS)}")


def figure(value: Value) -> float:
    """The one number of a value: the F-measure where it has parts."""
    return float(value["fmeasure"] if isinstance(value, dict) else value)


def _rouge(
    predictions: Predictions, references: References, metrics: Sequence[str], manner: Manner
) -> dict[str, Column]:
    stem, formula, script = manner.stem, manner.formula, manner.script
    rows = rouge.rouge(predictions, references, metrics, stem, formula, script)
    return {
        metric: _mean_column(
            [row[metric] for row in rows], rouge.signature(metric, stem, formula, script)
        )
        for metric in metrics
    }


def _meteor(predictions: Predictions, references: References, manner: Manner) -> Column:
    values = meteor.meteor(predictions, references, manner.synonyms)
    return _mean_column(values, meteor.signature(manner.synonyms))


def _bertscore(predictions: Predictions, references: References, manner: Manner) -> Column:
    from tasks.scoring.learned.bertscore import BertScore

    assert manner.encoder is not None
    scorer = BertScore(manner.encoder, manner.layer, manner.baseline, manner.idf)
    return _mean_column(*scorer.score(predictions, references))


def _learned(predictions: Predictions, references: References, manner: Manner) -> Column:
    from tasks.scoring.learned.metric import LearnedMetric

    assert manner.learned is not None
    digest = hashlib.sha256(manner.learned.read_bytes()).hexdigest()[:12]
    values = LearnedMetric.read(manner.learned).score(predictions, references)
    return _mean_column(values, f"learned|file:{digest}|headrace:1")


def _exact(predictions: Predictions, references: References, manner: Manner) -> Column:
    """Whether a prediction is one of its references, but for white space at the ends."""
    rows = zip(predictions, references, strict=True)
    values = [float(text.strip() in {one.strip() for one in row}) for text, row in rows]
    return _mean_column(values, "exact|strip:ends|headrace:1")


def _bleu(predictions: Predictions, references: References, manner: Manner) -> Column:
    from sacrebleu.metrics import BLEU

    # A short sentence has no 4-grams: rows use the effective order, the corpus all four.
    return _sacrebleu("bleu", BLEU(), BLEU(effective_order=True), predictions, references)


def _chrf(predictions: Predictions, references: References, manner: Manner) -> Column:
    from sacrebleu.metrics import CHRF

    return _sacrebleu("chrf", CHRF(), CHRF(), predictions, references)


def _chrf_words(predictions: Predictions, references: References, manner: Manner) -> Column:
    from sacrebleu.metrics import CHRF

    metric = CHRF(word_order=2)
    return _sacrebleu("chrf++", metric, metric, predictions, references)


def _sacrebleu(
    name: str, corpus: Any, sentence: Any, predictions: Predictions, references: References
) -> Column:
    rows: list[Value] = [
        sentence.sentence_score(prediction, list(row)).score
        for prediction, row in zip(predictions, references, strict=True)
    ]
    total = corpus.corpus_score(list(predictions), streams(references)).score
    return Column(total, rows, f"{name}|{corpus.get_signature()}")


OTHERS: dict[str, Callable[[Predictions, References, Manner], Column]] = {
    "bleu": _bleu,
    "chrf": _chrf,
    "chrf++": _chrf_words,
    "meteor": _meteor,
    "exact": _exact,
    "bertscore": _bertscore,
    "learned": _learned,
}


def streams(references: References) -> Any:
    """References by their number rather than by row; None where a row has fewer."""
    most = max(len(row) for row in references)
    return [[row[i] if i < len(row) else None for row in references] for i in range(most)]


def _mean_column(values: Sequence[Any], signature: str) -> Column:
    """A column whose corpus value is the mean of its rows, part by part."""
    if isinstance(values[0], dict):
        mean: Value = {p: float(np.mean([v[p] for v in values])) for p in values[0]}
    else:
        mean = float(np.mean(values))
    return Column(mean, [*values], signature)
