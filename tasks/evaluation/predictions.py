"""Files of predictions, scored: `headrace score FILE...`.

Rows `{"prediction", "references": [..]}` (or `"reference"`), with an `id` if they are to be told
apart; files of several systems, of the same references, give paired tests of their differences.
"""

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cluster.errors import BadInput
from tasks.data.row_files import (
    AS_THEY_ARE,
    Columns,
    RowLayout,
    has,
    read_columns,
    read_row_file,
    write_json_lines,
)
from tasks.evaluation.overlap.scores import (
    PLAIN,
    RESAMPLES,
    Column,
    Manner,
    check_metrics,
    columns,
    figure,
    summary,
)
from tasks.evaluation.statistics.intervals import METHOD
from tasks.evaluation.statistics.significance import best_systems, paired_tests

Rows = list[dict[str, Any]]
TEXTS = ("prediction", "reference", "references", "id")


@dataclass(frozen=True)
class System:
    """A file of predictions: its rows, and the column of every metric."""

    path: Path
    rows: Rows
    found: dict[str, Column]


def score_files(
    paths: Sequence[Path],
    metrics: Sequence[str],
    manner: Manner = PLAIN,
    contamination: Path | None = None,
    against: Path | None = None,
    group: str | None = None,
    to: Path | None = None,
    layout: RowLayout = AS_THEY_ARE,
) -> dict[str, Any]:
    """`score` for a file of rows, which keep their `id`; of several `{systems, best}`: each's,
    with its `file`, and by metric the one that a paired test calls better than the next.

    With `contamination`, what stage `decontaminate` found (its artifact's folder, or
    `items.jsonl`), `clean` and `dirty` are the scores of the rows whose id is of an item that is
    not, or is, in the training text. With `against`, another system's predictions for the same
    references, `difference` is a paired bootstrap test per metric. `group`, a field of the rows
    (their document, say): intervals resample whole groups. `to` is written with the rows of one
    file and one number per metric beside their fields, for `headrace agree`. `layout`: how the
    files are laid out, its names those of `prediction_columns`. Raises BadInput naming file and
    line.
    """
    check_metrics(metrics, manner)
    paths = list(dict.fromkeys(paths))
    if to and len(paths) > 1:
        raise BadInput(f"--to {to} takes the rows of one file; {len(paths)} are named")
    everyone = (*paths, *([against] if against else ()))
    systems = {path: _system(path, metrics, manner, layout) for path in everyone}
    first = systems[paths[0]]
    for other in systems.values():
        _check_same_rows(first, other)
    groups = None if group is None else _groups(first, group)
    drawn = {"intervals_by": f"{METHOD}, {RESAMPLES} resamples of {group or 'row'}s"}
    results: list[dict[str, Any]] = []
    for path in paths:
        result = _scored(systems[path], groups, contamination) | drawn
        if against:
            tests = paired_tests(systems[path].found, systems[against].found, groups)
            result["difference"] = tests
        results.append(result)
    if to:
        _write(to, first.rows, results[0]["rows"])
    if len(results) == 1:
        return results[0]
    best = best_systems({str(path): systems[path].found for path in paths}, groups)
    named = zip(paths, results, strict=True)
    return {"systems": [{"file": str(path), **result} for path, result in named], "best": best}


def prediction_columns(text: str | None) -> Columns:
    """What `--columns` says of rows of predictions; `reference` and `references` are one field."""
    found = dict(read_columns(text, TEXTS, TEXTS[1:3]))
    references = (*found.pop("reference", ()), *found.pop("references", ()))
    return found | ({"references": references} if references else {})


def read_predictions(path: Path, layout: RowLayout = AS_THEY_ARE) -> Rows:
    """The rows of a file, each with a list of `references`; BadInput names file and line."""
    lines = read_row_file(path, layout)
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
    found = read_row_file(file)
    if faulty := [number for number, item in found if not {"id", "dirty"} <= item.keys()]:
        raise BadInput(
            f"{file}, line {faulty[0]} is no item of stage `decontaminate`: it has no 'id' and "
            "'dirty'; `headrace ls` lists such artifacts"
        )
    items = [item for _, item in found if item["dirty"]]
    return {item["id"] for item in items if not sets or item["benchmark"] in sets}


def _system(path: Path, metrics: Sequence[str], manner: Manner, layout: RowLayout) -> System:
    rows = read_predictions(path, layout)
    texts, references = [r["prediction"] for r in rows], [r["references"] for r in rows]
    return System(path, rows, columns(texts, references, metrics, manner))


def _check_same_rows(first: System, other: System) -> None:
    if [row["references"] for row in first.rows] != [row["references"] for row in other.rows]:
        raise BadInput(
            f"{other.path} does not have the references of {first.path}, row by row; a paired test "
            "compares two systems on the same rows"
        )


def _scored(
    system: System, groups: Sequence[Hashable] | None, contamination: Path | None
) -> dict[str, Any]:
    """The summary of a system, its rows with their ids, and its clean and dirty parts."""
    result = summary(system.found, len(system.rows), groups)
    for row, scored in zip(system.rows, result["rows"], strict=True):
        if "id" in row:
            scored["id"] = row["id"]
    if contamination:
        dirty = dirty_items(contamination)
        for name, wanted in (("clean", False), ("dirty", True)):
            part = [i for i, r in enumerate(system.rows) if (str(r.get("id")) in dirty) is wanted]
            result[name] = {"rows": len(part), "corpus": _corpus(system.found, part)}
    return result


def _groups(system: System, field: str) -> list[str]:
    for number, row in enumerate(system.rows, 1):
        if not isinstance(row.get(field), str | int):
            raise BadInput(f"{system.path}, row {number} has no '{field}' to group by")
    return [str(row[field]) for row in system.rows]


def _corpus(found: dict[str, Column], part: list[int]) -> dict[str, Any]:
    if not part:
        return {}
    return {metric: column.corpus(np.array(part)) for metric, column in found.items()}


def _write(to: Path, rows: Rows, scored: Rows) -> None:
    pairs = zip(rows, scored, strict=True)
    write_json_lines(to, (row | _figures(of) for row, of in pairs))


def _figures(scored: dict[str, Any]) -> dict[str, float]:
    return {name: figure(value) for name, value in scored.items() if name != "id"}


def _read(place: str, row: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(row.get("prediction"), str):
        raise BadInput(f"{place} has no text in 'prediction'; {has(row)}")
    references = row.get("references", row.get("reference"))
    references = [references] if isinstance(references, str) else references
    texts = isinstance(references, list) and all(isinstance(r, str) for r in references)
    if not texts or not references:
        raise BadInput(
            f"{place} has no list of texts in 'references' (or text in 'reference'); {has(row)}"
        )
    return {**row, "references": references}
