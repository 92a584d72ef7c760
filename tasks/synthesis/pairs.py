"""Pairs of a question, or an instruction, and its answer: as text, and read back from it.

    Question: How does water turn the wheel?
    Answer: It falls into the buckets.

As text they go through deduplication, decontamination and redaction like any other, and what those
leave is what `instruct` learns from.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from cluster.artifact import Artifact
from tasks.data.text import read_batches

LINE = re.compile(
    r"^[\s*#>\d.)-]*(question|instruction|answer)s?\s*\d*\s*\**\s*:\**[ \t]*", re.IGNORECASE
)
ANSWER = "answer"
HEADS = {"questions": "Question", "instructions": "Instruction"}


class Pair(NamedTuple):
    """What is asked, and the answer."""

    asked: str
    answer: str


class Row(NamedTuple):
    """A pair of a text artifact, and the document that it was made from."""

    id: str
    pair: Pair
    document: str


def shown(pairs: Sequence[Pair], kind: str) -> str:
    """Pairs as text."""
    head = HEADS[kind]
    return "\n\n".join(f"{head}: {pair.asked}\nAnswer: {pair.answer}" for pair in pairs)


def pairs_in(text: str) -> list[Pair]:
    """The pairs that a text has. What stands before the first question is none of it, nor is a
    question without an answer.
    """
    parts: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if mark := LINE.match(line):
            parts.append((mark[1].lower(), [line[mark.end() :]]))
        elif parts:
            parts[-1][1].append(line)
    texts = [(what, "\n".join(lines).strip().strip("*").strip()) for what, lines in parts]
    return [
        Pair(asked, answer)
        for (what, asked), (then, answer) in pairwise(texts)
        if what != ANSWER and then == ANSWER and asked and answer
    ]


def marked(text: str) -> bool:
    """Whether a line of it would be read as the head of another pair."""
    return any(LINE.match(line) for line in text.splitlines())


def rows_of(made: Artifact, sources: Sequence[str]) -> Iterator[Row]:
    """The pairs of an artifact of made text, of some of its sources."""
    for batch in read_batches(made, ["id", "text", "source", "origin"]):
        for row in batch.to_pylist():
            if row["source"] in sources:
                for number, pair in enumerate(pairs_in(row["text"]), 1):
                    yield Row(f"{row['id']}/{number}", pair, row["origin"])
