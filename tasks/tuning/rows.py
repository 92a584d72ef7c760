"""Rows to tune on: labelled texts and instruction pairs, read from JSON lines, split by group.

The order of rows is that of a hash of their content, so it is the same on every machine.
"""

import contextlib
import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from cluster.errors import BadInput
from tasks.data.reading.settings import TableSettings
from tasks.data.row_files import USUAL, RowLayout, read_row_file
from tasks.tuning.settings import EarlyStoppingSettings

INSTRUCTION_NAMES = ("instruction", "prompt", "question")
RESPONSE_NAMES = ("response", "output", "completion", "answer")
MATERIAL_NAMES = ("input", "context")
"""What Alpaca's and Dolly's rows ask about, apart from what they ask."""
TURNS = {"messages": ("role", "content"), "conversations": ("from", "value")}
"""Fields that hold a whole conversation, and what OpenAI's and ShareGPT's call its turns' parts."""
ROLES = {"human": "user", "gpt": "assistant", "function": "tool", "observation": "tool"}
KNOWN_ROLES = ("system", "user", "assistant", "tool")
Turn = tuple[str, str]
"""A role and what is said."""


class Grouped(Protocol):
    """A row: `group` is what the split never divides, rows are sorted by `order`."""

    @property
    def group(self) -> str:
        """The group, whose rows stay on one side of the split."""
        ...

    @property
    def order(self) -> str:
        """The key rows are sorted by."""
        ...


class Keyed(Grouped, Protocol):
    """A row that is to occur once."""

    @property
    def key(self) -> str:
        """What is read of it."""
        ...


@dataclass(frozen=True)
class Snippet:
    """A text, or a pair with a `second` one, and its class, or all `labels` that hold; `group` is
    what the split never divides (a file).
    """

    text: str
    label: str
    group: str
    second: str | None = None
    labels: tuple[str, ...] | None = None
    id: str | None = None

    @property
    def classes(self) -> tuple[str, ...]:
        """What holds of it."""
        return (self.label,) if self.labels is None else self.labels

    @property
    def texts(self) -> tuple[str, ...]:
        """One text or two."""
        return (self.text,) if self.second is None else (self.text, self.second)

    @property
    def key(self) -> str:
        """What is read of it."""
        return "\0".join(self.texts)

    @property
    def order(self) -> str:
        """The key rows are sorted by."""
        return digest(*self.texts, *self.classes, self.group)

    def number(self) -> float:
        """Its label as a number. Raises BadInput for what is none."""
        with contextlib.suppress(ValueError):
            if math.isfinite(value := float(self.label)):
                return value
        raise BadInput(
            f"'{self.label}' of the text '{self.text[:40]}' is no number; each row needs one here"
        )

    def record(self) -> dict[str, Any]:
        """The row as `predictions.jsonl` keeps it."""
        found = {key: value for key, value in asdict(self).items() if value is not None}
        return found if self.labels is None else {**found, "label": found.pop("labels")}


@dataclass(frozen=True)
class Pair:
    """An instruction and its answer, behind the turns `before` them in a conversation; `number` is
    the row's place in its source, from 1.
    """

    id: str
    instruction: str
    response: str
    context: str
    group: str
    number: int
    before: tuple[Turn, ...] = ()
    asker: str = "user"

    @property
    def said(self) -> str:
        """All that is said, as a key."""
        return "\0".join((*(text for _, text in self.before), self.instruction, self.response))

    @property
    def bare(self) -> "Pair | None":
        """The same without what it asks about (its context); None where it says none."""
        instruction = self.instruction.removesuffix(f"\n\n{self.context}")
        whole = not self.context or instruction == self.instruction
        return None if whole else replace(self, instruction=instruction)

    @property
    def asked(self) -> list[dict[str, str]]:
        """The messages that the answer follows."""
        turns = (*self.before, (self.asker, self.instruction))
        return [{"role": role, "content": text} for role, text in turns]

    @property
    def messages(self) -> list[dict[str, str]]:
        """The whole conversation."""
        return [*self.asked, {"role": "assistant", "content": self.response}]

    @property
    def order(self) -> str:
        """The key rows are sorted by."""
        return digest(self.id, self.said)

    def record(self) -> dict[str, Any]:
        """The row as `heldout.jsonl` keeps it."""
        row = asdict(self)
        kept = {key: row[key] for key in ("id", "instruction", "response", "context")}
        return kept | ({"messages": self.asked} if self.before else {})


Row = TypeVar("Row", bound=Grouped)
Single = TypeVar("Single", bound=Keyed)


def read_snippets(
    path: Path,
    text: str,
    label: str,
    second: str | None = None,
    *,
    written: TableSettings = USUAL,
    unlabelled: bool = False,
) -> list[Snippet]:
    """Labelled rows of a file, of pairs where the field of the `second` text is named; rows with
    the same (first) text are one group. A label may be a list of them; with `unlabelled` rows may
    be without, and have "".

    Raises BadInput naming the line when a field is missing or a text is empty.
    """
    rows = []
    for number, row in read_row_file(path, RowLayout(table=written)):
        texts = [_text(row, name, path, number) for name in (text, second) if name]
        found = row.get(label, "") if unlabelled else field_of(row, (label,), path, number)
        several = tuple(sorted(map(str, found))) if isinstance(found, list) else None
        named = "" if several is not None else str(found)
        own = str(row["id"]) if "id" in row else None
        rows.append(Snippet(texts[0], named, digest(texts[0]), *texts[1:], labels=several, id=own))
    return sorted(rows, key=lambda row: row.order)


def _text(row: Mapping[str, Any], name: str, path: Path, number: int) -> str:
    value = field_of(row, (name,), path, number)
    if not isinstance(value, str) or not value.strip():
        raise BadInput(f"{path}, line {number}: '{name}' is {value!r}, it must be a text")
    return value


def read_pairs(path: Path) -> list[Pair]:
    """Conversations of a file of JSON lines, empty answers included.

    A row holds turns, as OpenAI's `messages` or ShareGPT's `conversations`; or one instruction, as
    `instruction` (or `prompt`, `question`) and `response` (or `output`, `completion`, `answer`),
    with what it asks about in `input` (Alpaca) or `context` (Dolly), which also goes to the judge.
    `id` is optional. Rows that begin alike are one group. Raises BadInput naming the line when a
    field is missing, or a conversation is none.
    """
    rows = []
    for number, row in read_row_file(path):
        field = next((name for name in TURNS if name in row), None)
        read = _conversation(row, field, path, number) if field else _pair(row, path, number)
        rows.append(read)
    return sorted(rows, key=lambda row: row.order)


def asked_in(row: Mapping[str, Any]) -> str | None:
    """The instruction of a row and what it asks about, as one text; None where there is none."""
    instruction = next((str(row[name]) for name in INSTRUCTION_NAMES if name in row), None)
    material = next((str(row[name]) for name in MATERIAL_NAMES if row.get(name)), None)
    return f"{instruction}\n\n{material}" if instruction and material else instruction


def _pair(row: Mapping[str, Any], path: Path, number: int) -> Pair:
    instruction = str(field_of(row, INSTRUCTION_NAMES, path, number))
    asked = asked_in(row) or instruction
    response = str(field_of(row, RESPONSE_NAMES, path, number) or "")
    label, context = str(row.get("id", number)), str(row.get("context") or "")
    return Pair(label, asked, response, context, digest(asked), number)


def _conversation(row: Mapping[str, Any], field: str, path: Path, number: int) -> Pair:
    """The turns up to the assistant's last one."""
    turns = read_turns(row[field], f"{path}, line {number}", field)
    while turns and turns[-1][0] != "assistant":
        turns.pop()
    if len(turns) < 2:
        raise BadInput(f"{path}, line {number}: nothing in `{field}` is said and then answered")
    *before, (asker, asked), (_, response) = turns
    label, context = str(row.get("id", number)), str(row.get("context") or "")
    group = digest(*(text for _, text in turns[:-1]))
    return Pair(label, asked, response, context, group, number, tuple(before), asker)


def read_turns(listed: Any, where: str, field: str) -> list[Turn]:
    """The turns of a conversation, as OpenAI's or ShareGPT's rows have them. Raises BadInput that
    says where for what is no list of turns, and for a role that nobody has.
    """
    try:
        names = next(names for names in TURNS.values() if not listed or names[0] in listed[0])
        turns = [tuple(str(one[name] or "") for name in names) for one in listed]
    except (TypeError, KeyError, StopIteration) as error:
        forms = " or ".join(f"`{said}` and `{text}`" for said, text in TURNS.values())
        raise BadInput(
            f"{where}: `{field}` must be a list of turns, each with {forms}; {error!r}"
        ) from error
    if unknown := sorted({ROLES.get(role, role) for role, _ in turns} - set(KNOWN_ROLES)):
        raise BadInput(f"{where}: role {unknown[0]!r} is none of {', '.join(KNOWN_ROLES)}")
    return [(ROLES.get(role, role), text) for role, text in turns]


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


def held_apart(rows: list[Row], asked: EarlyStoppingSettings | None) -> tuple[list[Row], list[Row]]:
    """Rows to train on, and those by whose loss training may stop; all to train on by default."""
    return (rows, []) if asked is None else split(rows, asked.share)


def split_each_class(
    rows: Iterable[Snippet], heldout_share: float
) -> tuple[list[Snippet], list[Snippet]]:
    """`split` within each class, so that every class with two groups is on both sides."""
    classes: dict[str, list[Snippet]] = defaultdict(list)
    for row in rows:
        classes[row.label].append(row)
    parts = [split(classes[label], heldout_share) for label in sorted(classes)]
    train, heldout = ([row for part in parts for row in part[i]] for i in (0, 1))
    return sorted(train, key=lambda row: row.order), sorted(heldout, key=lambda row: row.order)


def sides(
    data: str,
    measured_on: str | None,
    heldout_share: float,
    read: Callable[[str], list[Single]],
    divide: Callable[[list[Single], float], tuple[list[Single], list[Single]]] = split,
) -> tuple[list[Single], list[Single], Counter[str]]:
    """Training rows, held-out rows and why others are neither: each occurs once, and nothing that
    is measured on is trained on. Without a file to measure on, `divide` holds out a share of the
    other. Raises BadInput where a side is empty.
    """
    measured = None if measured_on is None else read(measured_on)
    found = read(data)
    rows = distinct(found, lambda row: row.key)
    rejects = Counter(repeated_text=len(found) - len(rows))
    if measured is None:
        train, heldout = divide(rows, heldout_share)
    else:
        heldout = distinct(measured, lambda row: row.key)
        rejects["repeated_text"] += len(measured) - len(heldout)
        known = {row.key for row in heldout}
        train = [row for row in rows if row.key not in known]
        rejects["also_held_out"] = len(rows) - len(train)
    if not train or not heldout:
        raise BadInput(
            f"'{data}' leaves {len(train)} rows to train on and {len(heldout)} to measure on; it "
            "takes one of each"
        )
    return train, heldout, +rejects


def distinct(rows: Iterable[Row], key: Callable[[Row], str]) -> list[Row]:
    """The first row of each key, in order."""
    first: dict[str, Row] = {}
    for row in rows:
        first.setdefault(key(row), row)
    return list(first.values())


def digest(*texts: str) -> str:
    """A hash that orders rows and names groups the same way everywhere."""
    return hashlib.blake2b("\0".join(texts).encode(), digest_size=16).hexdigest()


def field_of(row: Mapping[str, Any], names: tuple[str, ...], path: Path, number: int) -> Any:
    """The first of these fields that a row has. Raises BadInput where it has none."""
    for name in names:
        if name in row:
            return row[name]
    raise BadInput(
        f"{path}, line {number} has no {' or '.join(repr(n) for n in names)}; "
        f"it has {', '.join(sorted(row)) or 'nothing'}"
    )
