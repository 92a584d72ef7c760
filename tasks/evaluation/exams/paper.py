"""An exam's paper: its rows read, its requests written, to be put to a candidate and graded.

    paper = read_paper(exam)
    sheet = sit(paper, candidate, progress)
    results = results_of(paper, sheet)

A paper is read once and may be sat by many.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cluster.errors import BadInput
from tasks.evaluation.exams.candidates import Candidate, Progress
from tasks.evaluation.exams.definition import Exam, Row, read_rows, read_shots
from tasks.evaluation.exams.grading import grade
from tasks.evaluation.exams.harness.figures import Part, grouped
from tasks.evaluation.exams.harness.grading import grade_task
from tasks.evaluation.exams.harness.requests import Asked, asked
from tasks.evaluation.exams.harness.task import Group, Task
from tasks.evaluation.overlap.scores import Column, intervals
from tasks.evaluation.statistics.wilson import wilson_interval


class Place(NamedTuple):
    """A row: its id, its file and line, and its group, whose rows intervals draw together."""

    id: Any
    file: str
    line: int
    group: str | None = None


@dataclass(frozen=True)
class Paper:
    """An exam and all that is asked in it: rows and answered examples of ours, or the requests of
    tasks of lm-evaluation-harness.
    """

    exam: Exam | Task | Group
    rows: list[Row]
    places: list[Place]
    shots: str = ""
    requests: tuple[tuple[Task, list[Asked]], ...] = ()


@dataclass(frozen=True)
class Sheet:
    """The graded answers, in parts by task: `grades` of all rows, the numbers of those `scored`."""

    parts: list[Part]

    @property
    def grades(self) -> list[dict[str, Any]]:
        """The grade of every row, task by task."""
        return [one for part in self.parts for one in part.graded.grades]

    @property
    def unscored(self) -> dict[str, int]:
        """How many rows have no grade, by the reason. Raises BadInput where none has one."""
        grades = self.grades
        scored = {n for part in self.parts for n in part.numbers}
        reasons = Counter(grades[n]["reason"] for n in range(len(grades)) if n not in scored)
        if not scored:
            why = ", ".join(f"{reason} ({count})" for reason, count in reasons.items())
            raise BadInput(f"no row has an answer: {why}")
        return dict(reasons)


def read_paper(exam: Exam | Task | Group) -> Paper:
    """All that an exam asks. Raises BadInput for rows or templates that do not fit."""
    if isinstance(exam, Exam):
        rows, file = read_rows(exam), Path(exam.rows).name
        places = [
            Place(row.get("id", n), file, row["line"], str(row.get(exam.group or "")))
            for n, row in enumerate(rows, 1)
        ]
        return Paper(exam, rows, places, read_shots(exam))
    requests = tuple((task, asked(task)) for task in exam.tasks)
    rows, places = [], []
    for task, each in requests:
        prefix = f"{task.name}/" if isinstance(exam, Group) else ""
        rows += [one.document.row for one in each]
        for n, (one, _) in enumerate(each, 1):
            own = one.row.get("id", n)
            places.append(Place(f"{prefix}{own}" if prefix else own, *one[1:]))
    return Paper(exam, rows, places, requests=requests)


def sit(paper: Paper, candidate: Candidate, progress: Progress) -> Sheet:
    """Put a paper to a candidate and grade it. Raises BadInput as `grade` and `grade_task` do."""
    if isinstance(paper.exam, Exam):
        graded = grade(paper.exam, paper.rows, paper.shots, candidate, progress)
        return Sheet([Part("", graded, 0)])
    parts, begin = list[Part](), 0
    for task, rows in paper.requests:
        parts.append(Part(task.name, grade_task(task, rows, candidate, progress), begin))
        begin += len(rows)
    return Sheet(parts)


def results_of(paper: Paper, sheet: Sheet, dirty: Sequence[bool] | None = None) -> dict[str, Any]:
    """Every figure over its scored rows and, where that is known, over the clean and the dirty:
    {name: {`value`, `interval` (95 %), `n`, `baseline`}}.
    """
    named = isinstance(paper.exam, Exam) and paper.exam.group
    drawn = [at.group for at in paper.places] if named else None
    results: dict[str, Any] = {}
    for name, column, numbers, baseline in grouped(paper.exam, sheet.parts):
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
