"""Overlap scores of predictions with references: BLEU, chrF, ROUGE, METEOR.

    headrace score FILE.jsonl --metrics bleu,rougeL --json

BLEU and chrF are sacrebleu's, 0-100; the others are ours, 0-1. Every metric carries a signature:
all that its value depends on besides the texts.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cluster.errors import BadInput
from cluster.settings import nearest
from tasks.scoring.overlap import meteor, rouge

Value = float | dict[str, float]
Column = tuple[Value, list[Value], str]
METRICS = ("bleu", *rouge.METRICS, "meteor", "chrf")


def score_file(
    path: Path, metrics: Sequence[str], stem: bool = False, contamination: Path | None = None
) -> dict[str, Any]:
    """`score` for a JSON-lines file of `{"prediction", "references": [..]}` (or `"reference"`).

    Rows keep their `id`. With `contamination`, what stage `decontaminate` found (its artifact's
    folder, or `items.jsonl`), `clean` and `dirty` are the scores of the rows whose id is of an item
    that is not, or is, in the training text. Raises BadInput naming file and line.
    """
    _check_metrics(metrics)
    rows = [_read(path, number, line) for number, line in _lines(path)]
    if not rows:
        raise BadInput(f'{path} has no rows; expected lines of {{"prediction", "references"}}')
    result = score([r["prediction"] for r in rows], [r["references"] for r in rows], metrics, stem)
    for row, scored in zip(rows, result["rows"], strict=True):
        if "id" in row:
            scored["id"] = row["id"]
    if contamination:
        dirty = dirty_items(contamination)
        for name, wanted in (("clean", False), ("dirty", True)):
            part = [row for row in rows if (str(row.get("id")) in dirty) is wanted]
            result[name] = {"rows": len(part), "corpus": _corpus(part, metrics, stem)}
    return result


def dirty_items(path: Path) -> set[str]:
    """The ids of evaluation items that stage `decontaminate` found in the training text."""
    file = path / "items.jsonl" if path.is_dir() else path
    if not file.is_file():
        raise BadInput(f"{file} does not exist; `headrace ls` lists `decontaminate` artifacts")
    items = [json.loads(line) for line in file.read_text().splitlines()]
    return {item["id"] for item in items if item["dirty"]}


def _corpus(rows: list[dict[str, Any]], metrics: Sequence[str], stem: bool) -> dict[str, Any]:
    if not rows:
        return {}
    scores = score([r["prediction"] for r in rows], [r["references"] for r in rows], metrics, stem)
    return dict(scores["corpus"])


def score(
    predictions: Sequence[str],
    references: Sequence[Sequence[str]],
    metrics: Sequence[str],
    stem: bool = False,
    formula: rouge.Formula = "best",
) -> dict[str, Any]:
    """`{"corpus": {metric: value}, "rows": [{metric: value}], "signatures": {metric: text}}`.

    A value is a float, or `{precision, recall, fmeasure}` for ROUGE. `corpus` is the corpus score
    of BLEU and chrF and the mean over rows of the others. `stem` and `formula` are ROUGE's.
    Raises BadInput for an unknown metric or a row without references.
    """
    _check_metrics(metrics)
    if len(predictions) != len(references) or not all(references):
        raise BadInput(
            f"{len(predictions)} predictions, {len(references)} lists of references, "
            f"{sum(not row for row in references)} of them empty; every row needs one or more"
        )
    columns: dict[str, Column] = {}
    if wanted := [m for m in metrics if m in rouge.METRICS]:
        columns |= _rouge(predictions, references, wanted, stem, formula)
    for metric in metrics:
        if metric in OTHERS:
            columns[metric] = OTHERS[metric](predictions, references)
    return {
        "corpus": {m: columns[m][0] for m in metrics},
        "rows": [{m: columns[m][1][i] for m in metrics} for i in range(len(predictions))],
        "signatures": {m: columns[m][2] for m in metrics},
    }


def _rouge(
    predictions: Sequence[str],
    references: Sequence[Sequence[str]],
    metrics: Sequence[str],
    stem: bool,
    formula: rouge.Formula,
) -> dict[str, Column]:
    rows = rouge.rouge(predictions, references, metrics, stem, formula)
    columns: dict[str, Column] = {}
    for metric in metrics:
        values = [row[metric] for row in rows]
        mean = {part: _mean([v[part] for v in values]) for part in values[0]}
        columns[metric] = (mean, [*values], rouge.signature(metric, stem, formula))
    return columns


def _meteor(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> Column:
    values = meteor.meteor(predictions, references)
    return _mean(values), [*values], meteor.signature()


def _bleu(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> Column:
    from sacrebleu.metrics import BLEU

    # A short sentence has no 4-grams: rows use the effective order, the corpus all four.
    sentence, corpus = BLEU(effective_order=True), BLEU()
    rows: list[Value] = [
        sentence.sentence_score(prediction, list(row)).score
        for prediction, row in zip(predictions, references, strict=True)
    ]
    total = corpus.corpus_score(list(predictions), _streams(references)).score
    return total, rows, f"bleu|{corpus.get_signature()}"


def _chrf(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> Column:
    from sacrebleu.metrics import CHRF

    metric = CHRF()
    rows: list[Value] = [
        metric.sentence_score(prediction, list(row)).score
        for prediction, row in zip(predictions, references, strict=True)
    ]
    total = metric.corpus_score(list(predictions), _streams(references)).score
    return total, rows, f"chrf|{metric.get_signature()}"


OTHERS: dict[str, Callable[[Sequence[str], Sequence[Sequence[str]]], Column]] = {
    "bleu": _bleu,
    "chrf": _chrf,
    "meteor": _meteor,
}


def _streams(references: Sequence[Sequence[str]]) -> Any:
    """References by their number rather than by row; None where a row has fewer."""
    most = max(len(row) for row in references)
    return [[row[i] if i < len(row) else None for row in references] for i in range(most)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _check_metrics(metrics: Sequence[str]) -> None:
    for metric in metrics:
        if metric == "bertscore":
            raise BadInput(
                "bertscore needs a pretrained encoder, and none is installed or trained here; "
                f"choose from {', '.join(METRICS)}"
            )
        if metric not in METRICS:
            raise BadInput(f"unknown metric '{metric}'; {nearest(metric, METRICS)}")
    if not metrics:
        raise BadInput(f"no metric given; choose from {', '.join(METRICS)}")


def _lines(path: Path) -> list[tuple[int, str]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read as UTF-8 text: {error}") from error
    return [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]


def _read(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise BadInput(f"{path}, line {number} is not JSON: {error}") from error
    if not isinstance(row, dict) or not isinstance(row.get("prediction"), str):
        raise BadInput(f"{path}, line {number} has no text in 'prediction'")
    references = row.get("references", row.get("reference"))
    references = [references] if isinstance(references, str) else references
    texts = isinstance(references, list) and all(isinstance(r, str) for r in references)
    if not texts or not references:
        raise BadInput(
            f"{path}, line {number} has no list of texts in 'references' (or text in 'reference')"
        )
    return {**row, "references": references}
