"""Rows to tune on: labelled texts and instruction pairs, read from JSON lines, split by group.

The order of rows is that of a hash of their content, so it is the same on every machine.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from cluster.errors import BadInput
from tasks.data.row_files import read_row_file

INSTRUCTION_NAMES = ("instruction", "prompt", "question")
RESPONSE_NAMES = ("response", "output", "completion", "answer")


@dataclass(frozen=True)
class Snippet:
    """A text and its class; `group` is what the split never divides (a file)."""

    text: str
    label: str
    group: str

    @property
    def order(self) -> str:
        """The key rows are sorted by."""
        return digest(self.text, self.label, self.group)


@dataclass(frozen=True)
class Pair:
    """An instruction and its answer; `number` is the row's place in its source, from 1."""

    id: str
    instruction: str
    response: str
    context: str
    group: str
    number: int

    @property
    def order(self) -> str:
        """The key rows are sorted by."""
        return digest(self.id, self.instruction, self.response)

    def record(self) -> dict[str, str]:
        """The row as `heldout.jsonl` keeps it."""
        row = asdict(self)
        return {key: row[key] for key in ("id", "instruction", "response", "context")}


Row = TypeVar("Row", Snippet, Pair)


def read_snippets(path: Path, text: str = "text", label: str = "label") -> list[Snippet]:
    """Labelled rows of a file of JSON lines; rows with the same text are one group.

    Raises BadInput naming the line when a field is missing or the text is empty.
    """
    rows = []
    for number, row in read_row_file(path):
        value = _field(row, (text,), path, number)
        name = str(_field(row, (label,), path, number))
        if not isinstance(value, str) or not value.strip():
            raise BadInput(f"{path}, line {number}: '{text}' is {value!r}, it must be a text")
        rows.append(Snippet(value, name, digest(value)))
    return sorted(rows, key=lambda row: row.order)


def read_pairs(path: Path) -> list[Pair]:
    """Instruction pairs of a file of JSON lines, empty answers included.

    Fields: `instruction` (or `prompt`, `question`), `response` (or `output`, `completion`,
    `answer`), and optionally `input`, appended to the instruction; `context`, kept for the judge;
    `id`. Rows with the same instruction are one group. Raises BadInput naming the line when a field
    is missing.
    """
    rows = []
    for number, row in read_row_file(path):
        instruction = str(_field(row, INSTRUCTION_NAMES, path, number))
        if row.get("input"):
            instruction = f"{instruction}\n\n{row['input']}"
        response = str(_field(row, RESPONSE_NAMES, path, number) or "")
        context = str(row.get("context") or "")
        label = str(row.get("id", number))
        rows.append(Pair(label, instruction, response, context, digest(instruction), number))
    return sorted(rows, key=lambda row: row.order)


def read_shots(path: Path) -> list[tuple[str, str]]:
    """The instructions and responses of such a file in its order, to be shown before a prompt.

    Raises BadInput naming the row when a field is missing.
    """
    pairs = sorted(read_pairs(path), key=lambda pair: pair.number)
    return [(pair.instruction, pair.response) for pair in pairs]


def split(rows: Iterable[Row], heldout_share: float) -> tuple[list[Row], list[Row]]:
    """Training and held-out rows, each in hash order; no group is on both sides.

    Whole groups, ordered by the hash of their name, are held out until `heldout_share` of the rows
    is reached; the last group always stays in training.
    """
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.group].append(row)
    names = sorted(groups, key=digest)
    wanted = heldout_share * sum(map(len, groups.values()))
    heldout: list[Row] = []
    while len(names) > 1 and len(heldout) < wanted:
        heldout += groups[names.pop(0)]
    train = [row for name in names for row in groups[name]]
    return sorted(train, key=lambda row: row.order), sorted(heldout, key=lambda row: row.order)


def split_each_class(
    rows: Iterable[Snippet], heldout_share: float
) -> tuple[list[Snippet], list[Snippet]]:
    """`split` within each class, so that every class with two groups is on both sides."""
    classes: dict[str, list[Snippet]] = defaultdict(list)
    for row in rows:
        classes[row.label].append(row)
    sides = [split(classes[label], heldout_share) for label in sorted(classes)]
    train, heldout = ([row for side in sides for row in side[i]] for i in (0, 1))
    return sorted(train, key=lambda row: row.order), sorted(heldout, key=lambda row: row.order)


def distinct(rows: Iterable[Row], key: Callable[[Row], str]) -> list[Row]:
    """The first row of each key, in order."""
    first: dict[str, Row] = {}
    for row in rows:
        first.setdefault(key(row), row)
    return list(first.values())


def digest(*texts: str) -> str:
    """A hash that orders rows and names groups the same way everywhere."""
    return hashlib.blake2b("\0".join(texts).encode(), digest_size=16).hexdigest()


def _field(row: Mapping[str, Any], names: tuple[str, ...], path: Path, number: int) -> Any:
    for name in names:
        if name in row:
            return row[name]
    raise BadInput(
        f"{path}, line {number} has no {' or '.join(repr(n) for n in names)}; "
        f"it has {', '.join(sorted(row)) or 'nothing'}"
    )
