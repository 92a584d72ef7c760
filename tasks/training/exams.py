"""Exams that a network sits while it is trained: when, and how its rows tell the scores.

    pretrain:
      exams: {files: [capitals.yaml], every: 1000}

Nothing here knows what an exam is: stage `pretrain` is handed them (`AskedExams`). The row of a
step after which they were sat has `exam_seconds`, what they took together, and `exams`:

    {name: {"results": {figure: {value, interval, n, baseline}}, "unscored": {reason: n}, "better"}}
    {name: {"why"}}        where it could not be graded
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import Field, model_validator

from cluster.settings import Settings

if TYPE_CHECKING:
    from torch import Tensor

    from model.config import ModelConfig
    from model.generation import Network
    from tasks.tokens.encoder import Encoder

EXAMS, SECONDS = "exams", "exam_seconds"
Row = dict[str, Any]


class ExamTimes(Settings):
    """Exams that are sat during training."""

    files: tuple[str, ...] = Field(
        min_length=1, description="YAML files of exams, as in evaluate.exams"
    )
    every: int | None = Field(
        None, ge=1, description="steps from one time to the next; the last step is one, too"
    )
    at: tuple[int, ...] = Field((), description="steps after which they are sat, beside every")

    @model_validator(mode="after")
    def _some_time(self) -> "ExamTimes":
        if self.every is None and not self.at:
            raise ValueError("exams: say when they are sat, by `every: 1000` or `at: [1000, 5000]`")
        return self

    def steps(self, last: int) -> tuple[int, ...]:
        """The steps after which they are sat, of a training of so many. Raises ValueError for one
        that it does not make.
        """
        if wrong := [step for step in self.at if not 1 <= step <= last]:
            raise ValueError(f"exams.at is {wrong[0]}; training makes the steps 1 to {last}")
        regular = {*range(self.every, last, self.every), last} if self.every else set()
        return tuple(sorted(regular | {*self.at}))


class Sitting(Protocol):
    """An exam whose rows are read, to be sat again and again. It pickles."""

    @property
    def name(self) -> str:
        """Of the exam."""

    def sit(self, network: "Network", progress: Callable[[int, int], object]) -> Row:
        """What the network scores, or `why` it scores nothing."""


class AskedExams(Protocol):
    """The exams that stage `pretrain` is handed, and the steps after which they are sat."""

    @property
    def steps(self) -> tuple[int, ...]:
        """In order."""

    def sittings(
        self, config: "ModelConfig", encoder: "Encoder", start: Sequence[int]
    ) -> Sequence[Sitting]:
        """The exams for networks of a shape, read and tried out; an encoder-decoder's decoder
        begins with `start`. Raises BadInput for what cannot be asked of them.
        """


@dataclass(frozen=True)
class Exams:
    """What the loop needs: when, what is sat, and how weights by name become a network."""

    steps: tuple[int, ...]
    sittings: Sequence[Sitting]
    network: Callable[[Mapping[str, "Tensor"]], "Network"]


def points(rows: Iterable[Row]) -> list[Row]:
    """Every score of some rows, with its `step`, `exam` and `figure`, or `why` there is none."""
    return [
        {"step": row["step"], "exam": exam, **point}
        for row in rows
        for exam, found in row.get(EXAMS, {}).items()
        for point in _of_one(found)
    ]


def figures(row: Row) -> dict[str, float]:
    """The scores of a row by flat names, `exams/capitals.accuracy`."""
    return {_name(point): point["value"] for point in points([row]) if _has_value(point)}


def leading(row: Row) -> dict[str, float]:
    """The same of each exam's own figure alone, the first."""
    first = {point["exam"]: point for point in reversed(points([row])) if _has_value(point)}
    return {_name(point): point["value"] for point in first.values()}


def bounds(row: Row) -> dict[str, float]:
    """The 95 % intervals of a row's scores, each end by the flat name with `.low` or `.high`."""
    return {
        f"{_name(point)}.{end}": value
        for point in points([row])
        if _has_value(point)
        for end, value in zip(("low", "high"), point["interval"], strict=True)
    }


def _name(point: Row) -> str:
    return f"{EXAMS}/{point['exam']}.{point['figure']}"


def _has_value(point: Row) -> bool:
    return point.get("value") is not None


def _of_one(found: Row) -> Iterator[Row]:
    if "why" in found:
        yield found
        return
    for figure, result in found["results"].items():
        yield {"figure": figure, **result, "better": found["better"]}
