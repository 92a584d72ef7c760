"""The engine of stage `exam`: a paper read, put to the candidate, summed up and split."""

from collections.abc import Sequence
from pathlib import Path

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
from tasks.evaluation.exams.definition import Exam
from tasks.evaluation.exams.grading import Graded
from tasks.evaluation.exams.harness.figures import signature
from tasks.evaluation.exams.harness.task import Group, Task
from tasks.evaluation.exams.paper import Paper, Place, read_paper, results_of, sit
from tasks.evaluation.exams.settings import ROWS, ExamSettings, sets_of
from tasks.evaluation.judging.endpoint import MODEL_KEY, Endpoint
from tasks.evaluation.predictions import dirty_items

REPLIES = "replies.sqlite"


def answer_exam(
    settings: ExamSettings, model: Artifact | None, searched: Artifact | None, draft: Draft
) -> None:
    """See stage `exam`."""
    exam = settings.exam
    try:
        paper = read_paper(exam)
        candidate = _candidate(settings, model, draft, paper)
        sheet = sit(paper, candidate, lambda done, total: draft.progress(done, total, "rows"))
        unscored = sheet.unscored
    except ValueError as error:
        raise BadInput(f"{exam.name}, {settings.model}: {error}") from error
    grades = sheet.grades
    pairs = zip(paper.places, grades, strict=True)
    write_json_lines(draft.path / ROWS, ({"id": at.id, **one} for at, one in pairs))
    hashes = [remembered_hash(path) for path in exam.asked_files]
    results = results_of(paper, sheet, _dirty(settings, searched, paper.places, hashes))
    draft.rows = len(grades)
    draft.metrics = {name: result["value"] for name, result in results.items()}
    scored = float(len(grades) - sum(unscored.values()))
    draft.tracker.metrics([{"step": 0, **draft.metrics, "n": scored}])
    first = sheet.parts[0].graded
    draft.facts = {
        "model": settings.model,
        "exam": exam.name,
        "kind": exam.kind,
        "results": results,
        "unscored": unscored,
        "better": "lower" if first.lower_is_better else "higher",
        "signature": _signature(exam, candidate.manner, first, f"{len(grades)}@{_short(hashes)}"),
    }


def _candidate(
    settings: ExamSettings, model: Artifact | None, draft: Draft, paper: Paper
) -> Candidate:
    if settings.answers is not None:
        return StoredCandidate(Path(settings.answers), paper.rows)
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
