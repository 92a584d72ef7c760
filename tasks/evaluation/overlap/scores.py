"""Scores of predictions against references: BLEU, chrF, TER, ROUGE, METEOR, BERTScore.

    headrace score FILE.jsonl --metrics bleu,rougeL --json

BLEU, chrF and TER are sacrebleu's, in percent; the others are ours, 0-1. TER (Snover et al., A
study of translation edit rate, 2006) counts edits: less is better, and over 100 is possible.

Every metric carries a signature: all that its value depends on besides the texts.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cluster.errors import BadInput
from cluster.settings import nearest
from tasks.data.reading.hashes import file_hash
from tasks.evaluation.overlap import meteor, rouge
from tasks.evaluation.overlap.tokens import Script

Value = float | dict[str, float]
Predictions = Sequence[str]
References = Sequence[Sequence[str]]
Tokenize = Literal["13a", "intl", "zh", "char", "none"]
Smooth = Literal["exp", "floor", "add-k", "none"]
EVERY, RESAMPLES = slice(None), 1000
METRICS = (
    "bleu",
    *rouge.METRICS,
    "meteor",
    "chrf",
    "chrf++",
    "ter",
    "exact",
    "bertscore",
    "learned",
)
LOWER_IS_BETTER = frozenset({"ter"})


@dataclass(frozen=True)
class Column:
    """One metric: the value of each row, its signature, and what its corpus value is made of: the
    mean of the rows, or the `total` score of `counts` [rows, counts] that are added up.
    """

    rows: list[Value]
    signature: str
    counts: np.ndarray | None = None
    total: Callable[[list[float]], float] | None = None

    def corpus(self, chosen: np.ndarray | slice = EVERY) -> Value:
        """The value of all rows, or of some, by number, together."""
        if not isinstance(self.rows[0], dict):
            return self.figure(chosen)
        parts = np.array([[*row.values()] for row in self.rows if isinstance(row, dict)])[chosen]
        return dict(zip(self.rows[0], parts.mean(0).tolist(), strict=True))

    def figure(self, chosen: np.ndarray | slice = EVERY) -> float:
        """The one number of that value: the F-measure where it has parts."""
        if self.counts is not None and self.total is not None:
            return self.total(self.counts[chosen].sum(0).tolist())
        return float(self._figures[chosen].mean())

    @cached_property
    def _figures(self) -> np.ndarray:
        return np.array([figure(row) for row in self.rows])


@dataclass(frozen=True)
class Manner:
    """How the metrics that leave a choice are counted.

    `stem`, `formula` and `script` are ROUGE's; `synonyms` adds METEOR's WordNet stage; `encoder`
    (a model folder), `layer`, `baseline` and `idf` are BERTScore's; `learned` is the file of a
    metric made by `headrace learn`; `tokenize`, `smooth` and `smooth_value` are BLEU's; `chrf_eps`
    takes the mean of chrF's F-measures, as Moses and NLTK do, not of its precisions and recalls.
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
    tokenize: Tokenize = "13a"
    smooth: Smooth = "exp"
    smooth_value: float | None = None
    chrf_eps: bool = False


PLAIN = Manner()


def score(
    predictions: Predictions,
    references: References,
    metrics: Sequence[str],
) -> dict[str, Any]:
    """`{"corpus": {metric: value}, "intervals": {metric: [low, high]}, "n": rows,
    "rows": [{metric: value}], "signatures": {metric: text}}`.

    A value is a float, or `{precision, recall, fmeasure}` for ROUGE and BERTScore. `corpus` is the
    corpus score of BLEU, chrF and TER and the mean over rows of the others; `intervals` are its
    95 % BCa bootstrap intervals over rows, of the F-measure where there are parts.
    Raises BadInput for an unknown metric or a row without references.
    """
    found = columns(predictions, references, metrics)
    return summary(found, len(predictions))


def summary(
    found: Mapping[str, Column], n: int, groups: Sequence[Hashable] | None = None
) -> dict[str, Any]:
    """What `score` gives, of columns by metric; with `groups` (documents, say) intervals resample
    whole groups.
    """
    return {
        "n": n,
        "corpus": {name: column.corpus() for name, column in found.items()},
        "intervals": intervals(found, np.arange(n), groups),
        "rows": [{name: column.rows[i] for name, column in found.items()} for i in range(n)],
        "signatures": {name: column.signature for name, column in found.items()},
    }


def intervals(
    found: Mapping[str, Column], rows: np.ndarray, groups: Sequence[Hashable] | None = None
) -> dict[str, list[float]]:
    """95 % BCa bootstrap intervals of the value of these rows, by number; every metric over the
    same resamples of rows, or of the rows' `groups`.
    """
    from tasks.evaluation.statistics.intervals import bootstrap

    def figures(places: np.ndarray) -> list[float]:
        return [column.figure(rows[places]) for column in found.values()]

    drawn = bootstrap(figures, len(rows), groups, count=RESAMPLES)
    return {name: list(drawn.interval(number)) for number, name in enumerate(found)}


def columns(
    predictions: Predictions,
    references: References,
    metrics: Sequence[str],
    manner: Manner = PLAIN,
) -> dict[str, Column]:
    """The column of each metric, by its name. Raises BadInput as `score` does, and for a metric
    that lacks what it needs (`check_metrics`).
    """
    check_metrics(metrics, manner)
    if len(predictions) != len(references) or not all(references):
        raise BadInput(
            f"{len(predictions)} predictions, {len(references)} lists of references, "
            f"{sum(not row for row in references)} of them empty; every row needs one or more"
        )
    if not predictions:
        raise BadInput("there are no predictions to score")
    found: dict[str, Column] = {}
    if wanted := [m for m in metrics if m in rouge.METRICS]:
        found |= _rouge(predictions, references, wanted, manner)
    for metric in metrics:
        if metric in OTHERS:
            found[metric] = OTHERS[metric](predictions, references, manner)
    return {metric: found[metric] for metric in metrics}


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
        m: Column([row[m] for row in rows], rouge.signature(m, stem, formula, script))
        for m in metrics
    }


def _meteor(predictions: Predictions, references: References, manner: Manner) -> Column:
    values = meteor.meteor(predictions, references, manner.synonyms)
    return Column([*values], meteor.signature(manner.synonyms))


def _bertscore(predictions: Predictions, references: References, manner: Manner) -> Column:
    from tasks.evaluation.embedding.bertscore import BertScore

    assert manner.encoder is not None
    scorer = BertScore(manner.encoder, manner.layer, manner.baseline, manner.idf)
    values, signature = scorer.score(predictions, references)
    return Column([*values], signature)


def _learned(predictions: Predictions, references: References, manner: Manner) -> Column:
    from tasks.evaluation.learned import LearnedMetric

    assert manner.learned is not None
    digest = file_hash(manner.learned)[:12]
    values = LearnedMetric.read(manner.learned).score(predictions, references)
    return Column([*values], f"learned|file:{digest}|headrace:2")


def _exact(predictions: Predictions, references: References, manner: Manner) -> Column:
    """Whether a prediction is one of its references, but for white space at the ends."""
    rows = zip(predictions, references, strict=True)
    values = [float(text.strip() in {one.strip() for one in row}) for text, row in rows]
    return Column([*values], "exact|strip:ends|headrace:1")


def _bleu(predictions: Predictions, references: References, manner: Manner) -> Column:
    from sacrebleu.metrics import BLEU

    chosen = {"tokenize": manner.tokenize, "smooth_method": manner.smooth}
    how: dict[str, Any] = {**chosen, "smooth_value": manner.smooth_value}
    # A short sentence has no 4-grams: rows use the effective order, the corpus all four.
    return _counted("bleu", BLEU(**how), BLEU(**how, effective_order=True), predictions, references)


def _chrf(predictions: Predictions, references: References, manner: Manner) -> Column:
    from sacrebleu.metrics import CHRF

    metric = CHRF(eps_smoothing=manner.chrf_eps)
    return _counted("chrf", metric, metric, predictions, references)


def _chrf_words(predictions: Predictions, references: References, manner: Manner) -> Column:
    from sacrebleu.metrics import CHRF

    metric = CHRF(word_order=2, eps_smoothing=manner.chrf_eps)
    return _counted("chrf++", metric, metric, predictions, references)


def _ter(predictions: Predictions, references: References, manner: Manner) -> Column:
    from sacrebleu.metrics import TER

    return _counted("ter", TER(), TER(), predictions, references)


def _counted(
    name: str, corpus: Any, sentence: Any, predictions: Predictions, references: References
) -> Column:
    """A column of sacrebleu's: each row is counted once, for its own score and the corpus's."""
    counts = corpus._extract_corpus_statistics(predictions, streams(references))
    rows: list[Value] = [sentence._compute_score_from_stats(count).score for count in counts]
    return Column(
        rows,
        f"{name}|{corpus.get_signature()}",
        np.array(counts),
        lambda sums: float(corpus._compute_score_from_stats(sums).score),
    )


OTHERS: dict[str, Callable[[Predictions, References, Manner], Column]] = {
    "bleu": _bleu,
    "chrf": _chrf,
    "chrf++": _chrf_words,
    "ter": _ter,
    "meteor": _meteor,
    "exact": _exact,
    "bertscore": _bertscore,
    "learned": _learned,
}


def streams(references: References) -> Any:
    """References by their number rather than by row; None where a row has fewer."""
    most = max(len(row) for row in references)
    return [[row[i] if i < len(row) else None for row in references] for i in range(most)]
