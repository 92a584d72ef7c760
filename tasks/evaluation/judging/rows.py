"""Rows to judge and scores of rows, as JSON lines keep them."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from cluster.errors import BadInput
from tasks.data.row_files import AS_THEY_ARE, Columns, RowLayout, has, read_columns, read_row_file
from tasks.evaluation.judging.questions import Unscored

CONSTANT_ANSWER = "I do not know."
CONSTANT_ROWS = 100
LISTS = ("samples", "replies")
TEXTS = ("reference", "context", "other", "document", "system", "other_system")


@dataclass(frozen=True)
class Row:
    """One answer to judge."""

    id: str
    input: str
    prediction: str
    reference: str | None = None
    context: str | None = None
    other: str | None = None
    """Another system's answer to the same input, for comparisons."""
    document: str | None = None
    """What rows about the same text share: they are no independent ones."""
    system: str | None = None
    other_system: str | None = None
    samples: tuple[str, ...] = ()
    """Further answers drawn from the same system, for SelfCheck."""
    replies: tuple[str, ...] = ()
    """A judge's replies from elsewhere, to be read as they are."""

    def material(self, names: Sequence[str]) -> tuple[tuple[str, str], ...]:
        """(label, text) of those of the named fields that the row has; an empty answer is one."""
        fields = {**asdict(self), "answer": self.prediction}
        return tuple((name, fields[name]) for name in names if fields[name] or name == "answer")


@dataclass(frozen=True)
class Score:
    """One score of one row; `score` is None where `reason` says why. `spread` is the standard
    deviation of the judge's distribution, None where one reply is all there is; `mass` how much of
    it, or which share of the replies, was an allowed answer.
    """

    id: str
    metric: str
    criterion: str
    score: float | None = None
    spread: float | None = None
    mode: str | None = None
    reason: str | None = None
    distribution: dict[str, float] | None = None
    parts: tuple[float | None, ...] | None = None
    """The scores it is made of, where it is of several: a sentence's each, say."""
    mass: float | None = None
    ratings: tuple[float, ...] | None = None
    """What each of several replies said."""
    explanation: str | None = None
    detail: str | None = None
    """The judge's or the endpoint's own words where a row is unscored."""

    @classmethod
    def missing(cls, row: Row, metric: str, criterion: str, why: Unscored) -> "Score":
        """An unscored row."""
        return cls(row.id, metric, criterion, reason=why.reason, detail=why.detail or None)


def constant_rows(rows: Sequence[Row]) -> list[Row]:
    """The first rows, all answered with one answer that says nothing; under ids of their own."""
    return [
        replace(row, id=f"constant\0{row.id}", prediction=CONSTANT_ANSWER)
        for row in rows[:CONSTANT_ROWS]
    ]


def read_rows(path: Path, layout: RowLayout = AS_THEY_ARE) -> list[Row]:
    """The rows of a JSON-lines file: `id`, `input`, `prediction`, optional `reference`, `context`,
    `other` (another system's answer), `document` (rows that share one are drawn together),
    `system`, `other_system`, and lists of texts `samples` (more answers of the same system) and
    `replies` (of a judge, to be read as they are).

    A missing id becomes the line number; `layout` has the names of a file that has others.
    Raises BadInput naming the line.
    """
    rows = [_row(path, number, fields) for number, fields in read_row_file(path, layout)]
    if not rows:
        raise BadInput(f"{path} has no rows to judge")
    if len({row.id for row in rows}) < len(rows):
        raise BadInput(f"{path} has two rows with the same id; scores are kept by id")
    return rows


def _row(path: Path, number: int, fields: dict[str, Any]) -> Row:
    for name in ("input", "prediction"):
        if not isinstance(fields.get(name), str):
            raise BadInput(f"{path}, line {number} has no text in '{name}'; {has(fields)}")
    for name in TEXTS:
        if not isinstance(fields.get(name), str | None):
            raise BadInput(f"{path}, line {number}: '{name}' is {fields[name]!r}, expected text")
    for name in LISTS:
        texts = _listed(fields.get(name, []))
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise BadInput(
                f"{path}, line {number}: '{name}' is {texts!r}, expected a list of texts"
            )
    optional: dict[str, Any] = {name: fields.get(name) for name in TEXTS}
    optional |= {name: tuple(_listed(fields.get(name, []))) for name in LISTS}
    name = str(fields.get("id", number))
    return Row(name, fields["input"], fields["prediction"], **optional)


def row_columns(text: str | None) -> Columns:
    """What `--columns` says of the fields of rows to judge. Raises BadInput for an unknown one."""
    return read_columns(text, ("id", "input", "prediction", *TEXTS, *LISTS), LISTS)


def _listed(texts: Any) -> Any:
    """A single text, as a column of a table has it, is a list of one."""
    return [texts] if isinstance(texts, str) else texts
