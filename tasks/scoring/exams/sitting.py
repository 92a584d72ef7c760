"""The engine of stage `exam`: rows read, put to the candidate, marked, summed up and split."""

from collections import Counter
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.store import Draft
from tasks.data.decontaminate import ITEMS
from tasks.json_lines import write_json_lines
from tasks.scoring.exam import ROWS, Sitting, sets_of
from tasks.scoring.exams.candidates import (
    Candidate,
    LocalCandidate,
    RemoteCandidate,
    StoredCandidate,
)
from tasks.scoring.exams.definition import Exam, Row, read_rows, read_shots
from tasks.scoring.exams.marking import Marked, mark
from tasks.scoring.overlap.scores import Column, intervals
from tasks.scoring.predictions import dirty_items
from tasks.tuning.metrics import wilson_interval

REPLIES = "replies.sqlite"


def sit(settings: Sitting, model: Artifact | None, searched: Artifact | None, draft: Draft) -> None:
    """See stage `exam`."""
    exam = settings.exam
    rows, shots = read_rows(exam), read_shots(exam)
    candidate = _candidate(settings, model, draft, rows)
    try:
        marked = mark(
            exam, rows, shots, candidate, lambda done, total: draft.progress(done, total, "rows")
        )
    except ValueError as error:
        raise BadInput(f"{exam.name}, {settings.model}: {error}") from error
    reasons = Counter(marked.marks[n]["reason"] for n in _missing(marked))
    if not marked.scored:
        raise BadInput(f"{exam.name}, {settings.model}: no row has an answer, {dict(reasons)}")
    ids = [row.get("id", number) for number, row in enumerate(rows, 1)]
    pairs = zip(ids, marked.marks, strict=True)
    write_json_lines(draft.path / ROWS, ({"id": i, **one} for i, one in pairs))
    rows_hash = draft.spec.settings["settings"]["exam"]["rows"]
    results = _results(exam, rows, marked, _dirty(settings, searched, rows, rows_hash))
    draft.rows = len(rows)
    draft.metrics = {name: result["value"] for name, result in results.items()}
    draft.tracker.metrics([{"step": 0, **draft.metrics, "n": float(len(marked.scored))}])
    draft.facts = {
        "model": settings.model,
        "exam": exam.name,
        "kind": exam.kind,
        "results": results,
        "unscored": dict(reasons),
        "better": "lower" if marked.lower_is_better else "higher",
        "signature": _signature(settings, candidate, marked, f"{len(rows)}@{rows_hash[:12]}"),
    }


def _candidate(
    settings: Sitting, model: Artifact | None, draft: Draft, rows: Sequence[Row]
) -> Candidate:
    if settings.answers is not None:
        return StoredCandidate(Path(settings.answers), rows)
    if settings.url is None:
        return LocalCandidate(model.path if model else Path(str(settings.folder)))
    from tasks.scoring.judging.endpoint import Endpoint

    endpoint = Endpoint(settings.url, settings.model, concurrency=settings.concurrency)
    return RemoteCandidate(endpoint, draft.scratch / REPLIES)


def _missing(marked: Marked) -> list[int]:
    return sorted(set(range(len(marked.marks))) - set(marked.scored))


def _dirty(
    settings: Sitting, searched: Artifact | None, rows: Sequence[Row], rows_hash: str
) -> list[bool] | None:
    """Which rows were found in the training text: by their id, or by file and line; None where
    nobody looked.
    """
    if searched is not None:
        names = sets_of(searched.manifest.settings.get("settings"), rows_hash)
        found = dirty_items(searched.file(ITEMS), names)
    elif settings.contamination is not None:
        found = dirty_items(Path(settings.contamination))
    else:
        return None
    file = Path(settings.exam.rows).name
    return [bool({str(row.get("id")), f"{file}:{row['line']}"} & found) for row in rows]


def _results(
    exam: Exam, rows: Sequence[Row], marked: Marked, dirty: list[bool] | None
) -> dict[str, Any]:
    """Every figure over all scored rows and, where that is known, over the clean and the dirty."""
    everyone = np.arange(len(marked.scored))
    parts = {"": everyone}
    if dirty is not None:
        soiled = np.array([dirty[n] for n in marked.scored], bool)
        parts |= {"clean": everyone[~soiled], "dirty": everyone[soiled]}
    groups = [str(rows[n].get(exam.group)) for n in marked.scored] if exam.group else None
    results: dict[str, Any] = {}
    for name, column in marked.figures.items():
        shown = {part: _result(column, numbers, groups) for part, numbers in parts.items()}
        results[name] = shown.pop("") | {"baseline": marked.baselines.get(name), **shown}
    return results


def _result(
    column: Column, numbers: np.ndarray, groups: Sequence[Hashable] | None
) -> dict[str, Any]:
    """Value, 95 % interval and n of some rows.

    The interval is Wilson's for shares, whose bootstrap has no width where all are alike, else a
    bootstrap's over rows or groups.
    """
    n = len(numbers)
    if not n:
        return {"value": None, "interval": None, "n": 0}
    value = column.figure(numbers)
    if groups is None and column.signature.startswith("share of"):
        found: Sequence[float] = wilson_interval(round(value * n), n)
    else:
        kept = None if groups is None else [groups[i] for i in numbers]
        found = intervals({"": column}, numbers, kept)[""]
    return {"value": value, "interval": list(found), "n": n}


def _signature(settings: Sitting, candidate: Candidate, marked: Marked, rows: str) -> str:
    """All that the figures depend on besides the model."""
    exam = settings.exam
    own = marked.figures.get(exam.metric) if exam.kind == "overlap" else None
    parts = [
        exam.name,
        exam.kind if own is None else own.signature,
        f"rows:{rows}",
        f"prompt:{exam.prompt!r}",
        f"shots:{exam.shots}",
        f"by:{candidate.manner}" if exam.kind == "choice" else f"max:{exam.max_tokens}",
        f"normalise:{exam.normalise}" if exam.kind == "exact" else "",
        "headrace:2",
    ]
    return "|".join(filter(None, parts))
