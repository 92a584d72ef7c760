"""The engine of stage `exam`: rows read, put to the candidate, graded, summed up and split."""

from collections import Counter
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.store import Draft
from tasks.data.decontamination.stage import ITEMS
from tasks.data.reading.hashes import remembered_hash
from tasks.data.row_files import write_json_lines
from tasks.evaluation.exams.candidates import (
    Candidate,
    LocalCandidate,
    RemoteCandidate,
    StoredCandidate,
)
from tasks.evaluation.exams.definition import Exam, read_rows, read_shots
from tasks.evaluation.exams.grading import Graded, grade
from tasks.evaluation.exams.harness.figures import Part, grouped, signature
from tasks.evaluation.exams.harness.grading import grade_task
from tasks.evaluation.exams.harness.requests import asked
from tasks.evaluation.exams.harness.task import Group, Task
from tasks.evaluation.exams.settings import ROWS, ExamSettings, sets_of
from tasks.evaluation.judging.endpoint import MODEL_KEY, Endpoint
from tasks.evaluation.overlap.scores import Column, intervals
from tasks.evaluation.predictions import dirty_items
from tasks.evaluation.statistics.wilson import wilson_interval

REPLIES = "replies.sqlite"


class Place(NamedTuple):
    """A row: its id, where it lies, and whom intervals draw it with."""

    id: Any
    file: str
    line: int
    group: str | None = None


def answer_exam(
    settings: ExamSettings, model: Artifact | None, searched: Artifact | None, draft: Draft
) -> None:
    """See stage `exam`."""
    exam = settings.exam
    try:
        places, parts, manner = _sat(settings, model, draft)
    except ValueError as error:
        raise BadInput(f"{exam.name}, {settings.model}: {error}") from error
    grades = [one for part in parts for one in part.graded.grades]
    scored = {n for part in parts for n in part.numbers}
    reasons = Counter(grades[n]["reason"] for n in range(len(grades)) if n not in scored)
    if not scored:
        why = ", ".join(f"{reason} ({count})" for reason, count in reasons.items())
        raise BadInput(f"{exam.name}, {settings.model}: no row has an answer: {why}")
    pairs = zip(places, grades, strict=True)
    write_json_lines(draft.path / ROWS, ({"id": at.id, **one} for at, one in pairs))
    hashes = [remembered_hash(path) for path in exam.asked_files]
    results = _results(exam, parts, places, _dirty(settings, searched, places, hashes))
    draft.rows = len(grades)
    draft.metrics = {name: result["value"] for name, result in results.items()}
    draft.tracker.metrics([{"step": 0, **draft.metrics, "n": float(len(scored))}])
    first = parts[0].graded
    draft.facts = {
        "model": settings.model,
        "exam": exam.name,
        "kind": exam.kind,
        "results": results,
        "unscored": dict(reasons),
        "better": "lower" if first.lower_is_better else "higher",
        "signature": _signature(exam, manner, first, f"{len(grades)}@{_short(hashes)}"),
    }


def _sat(
    settings: ExamSettings, model: Artifact | None, draft: Draft
) -> tuple[list[Place], list[Part], str]:
    """Every row, the graded parts that they are of, and how answers came about."""

    def progress(done: int, total: int) -> None:
        draft.progress(done, total, "rows")

    exam = settings.exam
    if isinstance(exam, Exam):
        rows, shots = read_rows(exam), read_shots(exam)
        candidate = _candidate(settings, model, draft, rows)
        file = Path(exam.rows).name
        places = [
            Place(row.get("id", n), file, row["line"], str(row.get(exam.group or "")))
            for n, row in enumerate(rows, 1)
        ]
        part = Part("", grade(exam, rows, shots, candidate, progress), 0)
        return places, [part], candidate.manner
    questions = [(task, asked(task)) for task in exam.tasks]
    every = [one.document for _, rows in questions for one in rows]
    candidate = _candidate(settings, model, draft, [one.row for one in every])
    parts, places = list[Part](), list[Place]()
    for task, rows in questions:
        prefix = f"{task.name}/" if isinstance(exam, Group) else ""
        graded = grade_task(task, rows, candidate, progress)
        parts.append(Part(task.name, graded, len(places)))
        places += [
            Place(f"{prefix}{one.row.get('id', n)}" if prefix else one.row.get("id", n), *one[1:])
            for n, (one, _) in enumerate(rows, 1)
        ]
    return places, parts, candidate.manner


def _candidate(
    settings: ExamSettings, model: Artifact | None, draft: Draft, rows: Sequence[dict[str, Any]]
) -> Candidate:
    if settings.answers is not None:
        return StoredCandidate(Path(settings.answers), rows)
    if settings.url is None:
        return LocalCandidate(model.path if model else Path(str(settings.folder)))

    endpoint = Endpoint(
        settings.url, settings.model, concurrency=settings.concurrency, key=MODEL_KEY
    )
    return RemoteCandidate(endpoint, draft.scratch / REPLIES)


def _dirty(
    settings: ExamSettings,
    searched: Artifact | None,
    places: Sequence[Place],
    hashes: Sequence[str],
) -> list[bool] | None:
    """Which rows were found in the training text: by their id, or by file and line; None where
    nobody looked.
    """
    if searched is not None:
        names = sets_of(searched.manifest.settings.get("settings"), hashes)
        found = dirty_items(searched.file(ITEMS), names)
    elif settings.contamination is not None:
        found = dirty_items(Path(settings.contamination))
    else:
        return None
    return [bool({str(at.id), f"{at.file}:{at.line}"} & found) for at in places]


def _results(
    exam: Exam | Task | Group,
    parts: Sequence[Part],
    places: Sequence[Place],
    dirty: list[bool] | None,
) -> dict[str, Any]:
    """Every figure over its scored rows and, where that is known, over the clean and the dirty."""
    drawn = [at.group for at in places] if isinstance(exam, Exam) and exam.group else None
    results: dict[str, Any] = {}
    for name, column, numbers, baseline in grouped(exam, parts):
        everyone = np.arange(len(numbers))
        split = {"": everyone}
        if dirty is not None:
            soiled = np.array([dirty[n] for n in numbers], bool)
            split |= {"clean": everyone[~soiled], "dirty": everyone[soiled]}
        groups = [drawn[n] for n in numbers] if drawn else None
        shown = {part: _result(column, chosen, groups) for part, chosen in split.items()}
        results[name] = shown.pop("") | {"baseline": baseline, **shown}
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


def _short(hashes: Sequence[str]) -> str:
    return "+".join(one[:12] for one in hashes[:3])


def _signature(exam: Exam | Task | Group, manner: str, graded: Graded, rows: str) -> str:
    """All that the figures depend on besides the model."""
    if not isinstance(exam, Exam):
        return signature(exam, rows)
    own = graded.figures.get(exam.metric) if exam.kind == "overlap" else None
    parts = [
        exam.name,
        exam.kind if own is None else own.signature,
        f"rows:{rows}",
        f"prompt:{exam.prompt!r}",
        f"shots:{exam.shots}",
        f"by:{manner}" if exam.kind == "choice" else f"max:{exam.max_tokens}",
        f"normalise:{exam.normalise}" if exam.kind == "exact" else "",
        "headrace:2",
    ]
    return "|".join(filter(None, parts))
