"""Files of predictions, scored: `headrace score FILE.jsonl`.

Rows `{"prediction", "references": [..]}` (or `"reference"`), with an `id` if they are to be told
apart; a second system's file gives a paired test of the difference.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cluster.errors import BadInput
from tasks.scoring.overlap.scores import PLAIN, Manner, check_metrics, score

Rows = list[dict[str, Any]]


def score_file(
    path: Path,
    metrics: Sequence[str],
    manner: Manner = PLAIN,
    contamination: Path | None = None,
    against: Path | None = None,
) -> dict[str, Any]:
    """`score` for a JSON-lines file. Rows keep their `id`.

    With `contamination`, what stage `decontaminate` found (its artifact's folder, or
    `items.jsonl`), `clean` and `dirty` are the scores of the rows whose id is of an item that is
    not, or is, in the training text. With `against`, another system's predictions for the same
    references, `difference` is a paired bootstrap test per metric.
    Raises BadInput naming file and line.
    """
    check_metrics(metrics, manner)
    rows = read_predictions(path)
    result = _score(rows, metrics, manner)
    for row, scored in zip(rows, result["rows"], strict=True):
        if "id" in row:
            scored["id"] = row["id"]
    if contamination:
        dirty = dirty_items(contamination)
        for name, wanted in (("clean", False), ("dirty", True)):
            part = [row for row in rows if (str(row.get("id")) in dirty) is wanted]
            corpus = _score(part, metrics, manner)["corpus"] if part else {}
            result[name] = {"rows": len(part), "corpus": corpus}
    if against:
        result["difference"] = _difference(path, rows, against, metrics, manner)
    return result


def read_predictions(path: Path) -> Rows:
    """The rows of a file, each with a list of `references`; BadInput names file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read as UTF-8 text: {error}") from error
    lines = [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise BadInput(f'{path} has no rows; expected lines of {{"prediction", "references"}}')
    return [_read(path, number, line) for number, line in lines]


def dirty_items(path: Path) -> set[str]:
    """The ids of evaluation items that stage `decontaminate` found in the training text."""
    file = path / "items.jsonl" if path.is_dir() else path
    if not file.is_file():
        raise BadInput(f"{file} does not exist; `headrace ls` lists `decontaminate` artifacts")
    items = [json.loads(line) for line in file.read_text().splitlines()]
    return {item["id"] for item in items if item["dirty"]}


def _score(rows: Rows, metrics: Sequence[str], manner: Manner) -> dict[str, Any]:
    predictions, references = [r["prediction"] for r in rows], [r["references"] for r in rows]
    return score(predictions, references, metrics, manner)


def _difference(
    path: Path, rows: Rows, against: Path, metrics: Sequence[str], manner: Manner
) -> dict[str, Any]:
    from tasks.scoring.doubt.significance import paired_tests

    others = read_predictions(against)
    if [row["references"] for row in rows] != [row["references"] for row in others]:
        raise BadInput(
            f"{against} does not have the references of {path}, row by row; a paired test compares "
            "two systems on the same rows"
        )
    predictions = ([r["prediction"] for r in rows], [r["prediction"] for r in others])
    return paired_tests(predictions, [r["references"] for r in rows], metrics, manner)


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
