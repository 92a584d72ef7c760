"""The figures of tasks, and of groups of them: means of their tasks', weighed by rows or not.

Source: lm-evaluation-harness 0.4.13, `lm_eval/api/group.py` and `aggregate_subtask_metrics`.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tasks.evaluation.exams.grading import Graded
from tasks.evaluation.exams.harness.task import Aggregate, Group, Task
from tasks.evaluation.overlap.scores import Column

PINNED = "lm-eval:0.4.13"


class Part(NamedTuple):
    """The graded rows of one task, of which the first has the number `begin` among all."""

    name: str
    graded: Graded
    begin: int

    @property
    def numbers(self) -> list[int]:
        """The numbers of its scored rows among the rows of all tasks."""
        return [self.begin + number for number in self.graded.scored]


class Figure(NamedTuple):
    """One figure, the numbers of the rows that it is of, and what a guess would have."""

    name: str
    column: Column
    numbers: list[int]
    baseline: float | None


def grouped(exam: Any, parts: Sequence[Part]) -> Iterator[Figure]:
    """The figures of an exam: of a group its own first, then those of its tasks, by their names."""
    if not isinstance(exam, Group):
        (part,) = parts
        for name, column in part.graded.figures.items():
            yield Figure(name, column, part.numbers, part.graded.baselines.get(name))
        return
    by_name = {part.name: part for part in parts}
    for group in exam.groups:
        prefix = "" if group is exam else f"{group.name}/"
        mine = [by_name[task.name] for task in group.tasks]
        for one in group.aggregates:
            for name in _figures_of(one, mine):
                yield _mean(
                    f"{prefix}{name}", one, [p for p in mine if name in p.graded.figures], name
                )
    for part in parts:
        for name, column in part.graded.figures.items():
            about = part.numbers, part.graded.baselines.get(name)
            yield Figure(f"{part.name}/{name}", column, *about)


def signature(exam: Task | Group, rows: str) -> str:
    """All that the figures depend on besides the model and the rows' own content."""
    about = [task.model_dump(mode="json", exclude={"files"}) for task in exam.tasks]
    told = hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode()).hexdigest()
    shots = sorted({task.num_fewshot for task in exam.tasks})
    version = [f"version:{exam.version}"] if exam.version else []
    parts = [exam.name, exam.kind, f"rows:{rows}", f"shots:{'+'.join(map(str, shots))}"]
    return "|".join([*parts, f"task:{told[:12]}", *version, PINNED, "headrace:1"])


def _figures_of(one: Aggregate, parts: Sequence[Part]) -> list[str]:
    """The names of the figures that are averaged: one for each filter, or for those named."""
    wanted = [one.filter_list] if isinstance(one.filter_list, str) else one.filter_list
    found = dict.fromkeys(name for part in parts for name in part.graded.figures)
    return [
        name
        for name in found
        if name.partition("/")[0] == one.metric
        and (wanted is None or (name.partition("/")[2] or "none") in wanted)
    ]


def _mean(shown: str, one: Aggregate, parts: Sequence[Part], name: str) -> Figure:
    """The mean of the tasks' figures of this `name`, called `shown`, and of their baselines."""
    columns = [part.graded.figures[name] for part in parts]
    numbers = [number for part in parts for number in part.numbers]
    known = [part.graded.baselines.get(name) for part in parts]
    sizes = [len(part.graded.scored) if one.weight_by_size else 1 for part in parts]
    baseline = None
    if all(one is not None for one in known):
        baseline = float(np.average([float(one or 0) for one in known], weights=sizes))
    rows = [row for column in columns for row in column.rows]
    plain = all(column.counts is None for column in columns)
    if plain and one.weight_by_size:
        return Figure(shown, Column(rows, columns[0].signature), numbers, baseline)
    return Figure(shown, _weighed(columns, rows, one.weight_by_size), numbers, baseline)


def _weighed(columns: Sequence[Column], rows: list[Any], by_size: bool) -> Column:
    """The mean of several columns' figures, as one column: what each is made of stands beside that
    of the others, so that it can be drawn from and split like any.
    """
    counts = [
        np.array(column.rows, float)[:, None] if column.counts is None else column.counts
        for column in columns
    ]
    widths = [part.shape[1] + 1 for part in counts]
    ends = np.cumsum(widths)
    table = np.zeros((len(rows), int(ends[-1])))
    at = 0
    for part, end, width in zip(counts, ends, widths, strict=True):
        table[at : at + len(part), end - width : end - 1] = part
        table[at : at + len(part), end - 1] = 1.0
        at += len(part)

    def total(sums: Sequence[float]) -> float:
        values, weights = [], []
        for column, end, width in zip(columns, ends, widths, strict=True):
            *own, n = sums[end - width : end]
            if n:
                values.append(own[0] / n if column.total is None else column.total(own))
                weights.append(n if by_size else 1.0)
        return float(np.average(values, weights=weights))

    return Column(rows, columns[0].signature.removeprefix("share of "), table, total)
