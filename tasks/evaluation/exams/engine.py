"""The engine of stage `exam`: rows read, put to the candidate, graded, summed up and split."""

from collections import Counter
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.store import Draft
from tasks.data.decontamination.stage import ITEMS
from tasks.data.row_files import write_json_lines
from tasks.evaluation.exams.candidates import (
    Candidate,
    LocalCandidate,
    RemoteCandidate,
    StoredCandidate,
)
from tasks.evaluation.exams.definition import Exam, Row, read_rows, read_shots
from tasks.evaluation.exams.grading import Graded, grade
from tasks.evaluation.exams.settings import ROWS, ExamSettings, sets_of
from tasks.evaluation.judging.endpoint import MODEL_KEY, Endpoint
from tasks.evaluation.overlap.scores import Column, intervals
from tasks.evaluation.predictions import dirty_items
from tasks.tuning.classify.metrics import wilson_interval

REPLIES = "replies.sqlite"


def answer_exam(
    settings: ExamSettings, model: Artifact | None, searched: Artifact | None, draft: Draft
) -> None:
    """See stage `exam`."""
    exam = settings.exam
    rows, shots = read_rows(exam), read_shots(exam)
    candidate = _candidate(settings, model, draft, rows)
    try:
        graded = grade(
            exam, rows, shots, candidate, lambda done, total: draft.progress(done, total, "rows")
        )
    except ValueError as error:
        raise BadInput(f"{exam.name}, {settings.model}: {error}") from error
    reasons = Counter(graded.grades[n]["reason"] for n in _missing(graded))
    if not graded.scored:
        why = ", ".join(f"{reason} ({count})" for reason, count in reasons.items())
        raise BadInput(f"{exam.name}, {settings.model}: no row has an answer: {why}")
    ids = [row.get("id", number) for number, row in enumerate(rows, 1)]
    pairs = zip(ids, graded.grades, strict=True)
    write_json_lines(draft.path / ROWS, ({"id": i, **one} for i, one in pairs))
    rows_hash = draft.spec.settings["settings"]["exam"]["rows"]
    results = _results(exam, rows, graded, _dirty(settings, searched, rows, rows_hash))
    draft.rows = len(rows)
    draft.metrics = {name: result["value"] for name, result in results.items()}
    draft.tracker.metrics([{"step": 0, **draft.metrics, "n": float(len(graded.scored))}])
    draft.facts = {
        "model": settings.model,
        "exam": exam.name,
        "kind": exam.kind,
        "results": results,
        "unscored": dict(reasons),
        "better": "lower" if graded.lower_is_better else "higher",
        "signature": _signature(settings, candidate, graded, f"{len(rows)}@{rows_hash[:12]}"),
    }


def _candidate(
    settings: ExamSettings, model: Artifact | None, draft: Draft, rows: Sequence[Row]
) -> Candidate:
    if settings.answers is not None:
        return StoredCandidate(Path(settings.answers), rows)
    if settings.url is None:
        return LocalCandidate(model.path if model else Path(str(settings.folder)))

    endpoint = Endpoint(
        settings.url, settings.model, concurrency=settings.concurrency, key=MODEL_KEY
    )
    return RemoteCandidate(endpoint, draft.scratch / REPLIES)


def _missing(graded: Graded) -> list[int]:
    return sorted(set(range(len(graded.grades))) - set(graded.scored))


def _dirty(
    settings: ExamSettings, searched: Artifact | None, rows: Sequence[Row], rows_hash: str
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
    exam: Exam, rows: Sequence[Row], graded: Graded, dirty: list[bool] | None
) -> dict[str, Any]:
    """Every figure over all scored rows and, where that is known, over the clean and the dirty."""
    everyone = np.arange(len(graded.scored))
    parts = {"": everyone}
    if dirty is not None:
        soiled = np.array([dirty[n] for n in graded.scored], bool)
        parts |= {"clean": everyone[~soiled], "dirty": everyone[soiled]}
    groups = [str(rows[n].get(exam.group)) for n in graded.scored] if exam.group else None
    results: dict[str, Any] = {}
    for name, column in graded.figures.items():
        shown = {part: _result(column, numbers, groups) for part, numbers in parts.items()}
        results[name] = shown.pop("") | {"baseline": graded.baselines.get(name), **shown}
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


def _signature(settings: ExamSettings, candidate: Candidate, graded: Graded, rows: str) -> str:
    """All that the figures depend on besides the model."""
    exam = settings.exam
    own = graded.figures.get(exam.metric) if exam.kind == "overlap" else None
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
