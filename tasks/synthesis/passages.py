"""Which documents a model is asked about, cut into passages: what is asked, before anything is.

Documents are drawn by a hash of seed and id, so that neither their order nor their company matters.
"""

import hashlib
import heapq
import math
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa

from cluster.artifact import Artifact
from tasks.data.text import read_batches
from tasks.synthesis.settings import SynthesizeSettings

BOUNDARIES = (re.compile(r"\n\s*\n"), re.compile(r"(?<=[.!?。！？])\s+|\n"), re.compile(r"\s"))
"""Where a passage may end, the best first: between paragraphs, sentences, words."""


class Document(NamedTuple):
    """A row of a text artifact."""

    id: str
    text: str
    license: str | None


class Ask(NamedTuple):
    """One text to make: of what `kind`, of which passage of which row, and `how` (a style, the
    number of an instruction). `id` is that of the row that it becomes.
    """

    id: str
    kind: str
    how: str
    row: str
    license: str | None
    passage: str
    seed: int


def drawn(text: Artifact, count: int | None, seed: int) -> Iterator[Document]:
    """So many documents of a text artifact, in its order; None is all of them."""
    chosen = None
    if count is not None and count < (text.manifest.rows or 0):
        ids = (id for batch in read_batches(text, ["id"]) for id in batch["id"].to_pylist())
        ranked = heapq.nsmallest(count, ((number_of(seed, id), id) for id in ids))
        chosen = {id for _, id in ranked}
    for batch in read_batches(text, ["id", "text", "license"]):
        yield from _documents(batch, chosen)


def _documents(batch: pa.RecordBatch, chosen: set[str] | None) -> Iterator[Document]:
    ids = batch["id"].to_pylist()
    for row, id in enumerate(ids):
        if chosen is None or id in chosen:
            yield Document(id, batch["text"][row].as_py(), batch["license"][row].as_py())


def asks(documents: Iterable[Document], settings: SynthesizeSettings, seed: int) -> Iterator[Ask]:
    """Every text to make of some documents."""
    for document in documents:
        cut = passages(document.text, settings.passage_characters)[: settings.passages]
        for number, passage in enumerate(cut, 1):
            for kind, how in _wanted(settings):
                id = f"{document.id}#{kind}{f'-{how}' if how else ''}.{number}"
                own = number_of(seed, id) % 2**31
                yield Ask(id, kind, how, document.id, document.license, passage, own)


def _wanted(settings: SynthesizeSettings) -> Iterator[tuple[str, str]]:
    """What is made of every passage: the kind, and how."""
    if settings.rephrase:
        yield from (("rephrase", style) for style in settings.rephrase.styles)
    if settings.questions:
        yield "questions", ""
    if settings.instructions:
        yield from (("instructions", str(n)) for n in range(settings.instructions.each))


def passages(text: str, most: int) -> list[str]:
    """A text in parts of about equal length and at most so many characters, cut between paragraphs
    where there is an end of one, else between sentences or words.
    """
    text, found = text.strip(), []
    while len(text) > most:
        aim = len(text) / math.ceil(len(text) / most)
        end = _end(text, int(aim / 2), min(most, int(aim * 1.25)))
        found.append(text[:end].strip())
        text = text[end:].strip()
    return [part for part in [*found, text] if part]


def _end(text: str, least: int, most: int) -> int:
    """Where to cut between two places, at the last of the best boundaries."""
    for boundary in BOUNDARIES:
        ends = [match.end() for match in boundary.finditer(text, least, most)]
        if ends:
            return ends[-1]
    return most


def number_of(seed: int, id: str) -> int:
    """A number that seed and id decide, the same everywhere."""
    return int.from_bytes(hashlib.blake2b(f"{seed}\0{id}".encode(), digest_size=8).digest())
