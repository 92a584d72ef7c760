"""Rows of preferences: a prompt, answers to it, and which of them people want.

A prompt is a text in `prompt`, or an instruction with what it is about (as `tasks.tuning.rows` has
it), or a conversation in `prompt`, `messages` or `conversations`. The answers are `chosen` and
`rejected`, texts or turns, which may repeat the conversation before them; or one `completion` (or
the conversation's last turn) with a `label`: true is wanted.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.errors import BadInput
from tasks.data.row_files import read_row_file
from tasks.tuning.files import row_file
from tasks.tuning.prefer.settings import PreferenceRows
from tasks.tuning.rows import TURNS, Turn, asked_in, digest, distinct, read_turns, split

PAIR = ("chosen", "rejected")


@dataclass(frozen=True)
class Preference:
    """A prompt and answers to it, each one wanted or not: a pair, wanted first, or a single one.

    `number` is the row's place in its source, from 1.
    """

    id: str
    prompt: tuple[Turn, ...]
    answers: tuple[tuple[Turn, ...], ...]
    wanted: tuple[bool, ...]
    number: int

    @property
    def group(self) -> str:
        """What the split never divides: the prompt."""
        return digest(*(part for turn in self.prompt for part in turn))

    @property
    def said(self) -> str:
        """All that is said, as a key."""
        turns = (*self.prompt, *(turn for answer in self.answers for turn in answer))
        return "\0".join((*(part for turn in turns for part in turn), str(self.wanted)))

    @property
    def order(self) -> str:
        """The key rows are sorted by."""
        return digest(self.id, self.said)

    def record(self) -> dict[str, Any]:
        """The row as `heldout.jsonl` keeps it, with the wanted answer for reference."""
        kept = zip(self.answers, self.wanted, strict=True)
        replies = {yes: answer[-1][1] for answer, yes in kept}
        row = {
            "id": self.id,
            "instruction": self.prompt[-1][1],
            "response": replies.get(True, ""),
            "context": "",
            **({"rejected": replies[False]} if False in replies else {}),
        }
        return row | ({"messages": messages(self.prompt)} if len(self.prompt) > 1 else {})


def preference_rows(
    settings: PreferenceRows, single: bool
) -> tuple[list[Preference], list[Preference], Counter[str]]:
    """Training rows, held-out rows and why others are neither; no prompt is on both sides.

    With `single`, each answer of a pair is a training row of its own. Raises BadInput for rows that
    are no preferences, and for single answers where pairs are needed.
    """
    found = read_preferences(settings.data)
    rows = distinct(found, lambda row: row.said)
    rejects = Counter(repeated_row=len(found) - len(rows))
    if settings.heldout is None:
        train, heldout = split(rows, settings.heldout_share)
    else:
        heldout = read_preferences(settings.heldout)
        known = {row.group for row in heldout}
        train = [row for row in rows if row.group not in known]
        rejects["also_held_out"] = len(rows) - len(train)
    if single:
        train = sorted((one for row in train for one in singles(row)), key=lambda row: row.order)
    elif alone := next((row for row in train if len(row.answers) == 1), None):
        raise BadInput(
            f"'{settings.data}', line {alone.number} has one answer and a label, which is for "
            "`loss: kto`; the other losses take pairs of `chosen` and `rejected`"
        )
    return train, heldout, +rejects


def singles(row: Preference) -> Iterable[Preference]:
    """Each answer as a row of its own."""
    for answer, wanted in zip(row.answers, row.wanted, strict=True):
        yield Preference(row.id, row.prompt, (answer,), (wanted,), row.number)


def read_preferences(data: str) -> list[Preference]:
    """The rows of a file. Raises BadInput naming the line where one is no preference."""
    path = row_file(data)
    rows = [_preference(row, path, number) for number, row in read_row_file(path)]
    return sorted(rows, key=lambda row: row.order)


def messages(turns: Sequence[Turn]) -> list[dict[str, str]]:
    """Turns as a chat template takes them."""
    return [{"role": role, "content": text} for role, text in turns]


def _preference(row: Mapping[str, Any], path: Path, number: int) -> Preference:
    """A row of a file, in any of the forms that the module names."""
    where = f"{path}, line {number}"
    label = str(row.get("id", number))
    prompt = _prompt(row, path, number)
    if all(name in row for name in PAIR):
        given = [_turns(row[name], where, name) for name in PAIR]
        if prompt is None:
            prompt = _shared(*given)
        answers = tuple(_behind(prompt, answer) for answer in given)
        wanted: tuple[bool, ...] = (True, False)
    elif "label" in row:
        if "completion" in row:
            answers = (_turns(row["completion"], where, "completion"),)
        else:
            prompt, answers = (prompt or ())[:-1], ((prompt or ())[-1:],)
        wanted = (_label(row["label"], where),)
    else:
        raise BadInput(
            f"{where} has neither `chosen` and `rejected` nor a `completion` with its `label`; it "
            f"has {', '.join(sorted(row)) or 'nothing'}"
        )
    if not prompt or any(not answer or answer[-1][0] != "assistant" for answer in answers):
        raise BadInput(f"{where}: it takes a prompt, and answers that the assistant gives to it")
    return Preference(label, tuple(prompt), answers, wanted, number)


def _prompt(row: Mapping[str, Any], path: Path, number: int) -> tuple[Turn, ...] | None:
    """What the answers follow; None where they bring it themselves."""
    field = next((name for name in ("prompt", *TURNS) if isinstance(row.get(name), list)), None)
    if field:
        return tuple(read_turns(row[field], f"{path}, line {number}", field))
    text = asked_in(row)
    return None if text is None else (("user", text),)


def _turns(value: Any, where: str, name: str) -> tuple[Turn, ...]:
    """An answer: a text, a turn, or several."""
    if isinstance(value, str):
        return (("assistant", value),)
    return tuple(read_turns([value] if isinstance(value, dict) else value, where, name))


def _shared(first: Sequence[Turn], second: Sequence[Turn]) -> tuple[Turn, ...]:
    """The turns that two conversations begin with; each keeps an answer."""
    same = 0
    while same < min(len(first), len(second)) - 1 and first[same] == second[same]:
        same += 1
    return tuple(first[:same])


def _behind(prompt: Sequence[Turn], answer: tuple[Turn, ...]) -> tuple[Turn, ...]:
    """An answer without the conversation before it, where that is repeated."""
    repeated = answer[: len(prompt)] == tuple(prompt) and len(answer) > len(prompt)
    return answer[len(prompt) :] if repeated else answer


def _label(value: Any, where: str) -> bool:
    if value not in (True, False):  # 1 and 0 are these
        raise BadInput(f"{where}: `label` is {value!r}; it must be true (wanted) or false")
    return bool(value)
