"""Files of predictions, scored: `headrace score FILE.jsonl`.

Rows `{"prediction", "references": [..]}` (or `"reference"`), with an `id` if they are to be told
apart; a second system's file gives a paired test of the difference.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cluster.errors import BadInput
from tasks.data.json_files import (
    AS_THEY_ARE,
    Columns,
    read_columns,
    read_json_lines,
    write_json_lines,
)
from tasks.evaluation.overlap.scores import (
    PLAIN,
    Column,
    Manner,
    check_metrics,
    columns,
    figure,
    summary,
)
from tasks.evaluation.statistics.significance import paired_tests

Rows = list[dict[str, Any]]
TEXTS = ("prediction", "reference", "references", "id")


def score_file(
    path: Path,
    metrics: Sequence[str],
    manner: Manner = PLAIN,
    contamination: Path | None = None,
    against: Path | None = None,
    group: str | None = None,
    to: Path | None = None,
    names: Columns = AS_THEY_ARE,
) -> dict[str, Any]:
    """`score` for a file of rows. They keep their `id`.

    With `contamination`, what stage `decontaminate` found (its artifact's folder, or
    `items.jsonl`), `clean` and `dirty` are the scores of the rows whose id is of an item that is
    not, or is, in the training text. With `against`, another system's predictions for the same
    references, `difference` is a paired bootstrap test per metric. `group`, a field of the rows
    (their document, say): intervals resample whole groups. `to` is written with the rows as they
    were read and one number per metric beside their fields, for `headrace agree`. `names` are those
    of `prediction_columns`.
    Raises BadInput naming file and line.
    """
    check_metrics(metrics, manner)
    rows = read_predictions(path, names)
    groups = None if group is None else _groups(path, rows, group)
    predictions, references = [r["prediction"] for r in rows], [r["references"] for r in rows]
    found = columns(predictions, references, metrics, manner)
    result = summary(found, len(rows), groups)
    if to:
        _write(to, rows, result["rows"])
    for row, scored in zip(rows, result["rows"], strict=True):
        if "id" in row:
            scored["id"] = row["id"]
    if contamination:
        dirty = dirty_items(contamination)
        for name, wanted in (("clean", False), ("dirty", True)):
            part = [i for i, row in enumerate(rows) if (str(row.get("id")) in dirty) is wanted]
            result[name] = {"rows": len(part), "corpus": _corpus(found, part)}
    if against:
        others = _others(path, rows, against, names)
        result["difference"] = paired_tests(
            (predictions, others), references, metrics, manner, groups
        )
    return result


def prediction_columns(text: str | None) -> Columns:
    """What `--columns` says of rows of predictions; `reference` and `references` are one field."""
    found = dict(read_columns(text, TEXTS, TEXTS[1:3]))
    references = (*found.pop("reference", ()), *found.pop("references", ()))
    return found | ({"references": references} if references else {})


def read_predictions(path: Path, names: Columns = AS_THEY_ARE) -> Rows:
    """The rows of a file, each with a list of `references`; BadInput names file and line."""
    lines = read_json_lines(path, names)
    if not lines:
        raise BadInput(f'{path} has no rows; expected lines of {{"prediction", "references"}}')
    return [_read(f"{path}, line {number}", row) for number, row in lines]


def dirty_items(path: Path, sets: Collection[str] = ()) -> set[str]:
    """The ids of evaluation items that stage `decontaminate` found in the training text; with
    `sets`, those of the evaluation sets of these names.
    """
    file = path / "items.jsonl" if path.is_dir() else path
    if not file.is_file():
        raise BadInput(f"{file} does not exist; `headrace ls` lists `decontaminate` artifacts")
    found = read_json_lines(file)
    if faulty := [number for number, item in found if not {"id", "dirty"} <= item.keys()]:
        raise BadInput(
            f"{file}, line {faulty[0]} is no item of stage `decontaminate`: it has no 'id' and "
            "'dirty'; `headrace ls` lists such artifacts"
        )
    items = [item for _, item in found if item["dirty"]]
    return {item["id"] for item in items if not sets or item["benchmark"] in sets}


def _groups(path: Path, rows: Rows, field: str) -> list[str]:
    for number, row in enumerate(rows, 1):
        if not isinstance(row.get(field), str | int):
            raise BadInput(f"{path}, row {number} has no '{field}' to group by")
    return [str(row[field]) for row in rows]


def _corpus(found: dict[str, Column], part: list[int]) -> dict[str, Any]:
    if not part:
        return {}
    return {metric: column.corpus(np.array(part)) for metric, column in found.items()}


def _write(to: Path, rows: Rows, scored: Rows) -> None:
    pairs = zip(rows, scored, strict=True)
    write_json_lines(to, (row | {m: figure(value) for m, value in of.items()} for row, of in pairs))


def _others(path: Path, rows: Rows, against: Path, names: Columns) -> list[str]:
    """Another system's predictions for the same references."""
    others = read_predictions(against, names)
    if [row["references"] for row in rows] != [row["references"] for row in others]:
        raise BadInput(
            f"{against} does not have the references of {path}, row by row; a paired test compares "
            "two systems on the same rows"
        )
    return [row["prediction"] for row in others]


def _read(place: str, row: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(row.get("prediction"), str):
        raise BadInput(f"{place} has no text in 'prediction'")
    references = row.get("references", row.get("reference"))
    references = [references] if isinstance(references, str) else references
    texts = isinstance(references, list) and all(isinstance(r, str) for r in references)
    if not texts or not references:
        raise BadInput(f"{place} has no list of texts in 'references' (or text in 'reference')")
    return {**row, "references": references}
