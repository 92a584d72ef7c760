"""Whether anything still holds a piece of erased texts: runs of 13 words that no kept row has,
looked for in whatever a home keeps, as they are or as JSON and HTML have them.
"""

import re
import sqlite3
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cluster.artifact import Artifact
from tasks.data.text import read_batches
from tasks.tokens.encoder import load
from tasks.tokens.shards.settings import SPLITS
from tasks.tokens.shards.stream import TokenStream

WORDS = 13
"""As long as what GPT-3's authors looked for (Brown et al. 2020, appendix C)."""
SHORTEST = 5
"""Texts of fewer words are not looked for: other lines have these by chance."""
WORD = re.compile(r"(?:\\+u[0-9a-fA-F]{4}|\w)+")
NO_WORD = re.compile(r"\\[nrt]|&#?\w{1,6};|\\+u[0-9a-fA-F]{4}")
LETTER = re.compile(r"\\+u([0-9a-fA-F]{4})")
SQLITE = b"SQLite format 3\x00"
BUSY_SECONDS = 30.0
TOKENS = 1 << 20
OVERLAP = 1 << 10
PIECE = 1 << 24
WEIGHTS = (".safetensors", ".arrow", ".bin", ".npz")


def grams(text: str, sizes: Collection[int] = (WORDS,)) -> set[str]:
    """The runs of so many words of a text."""
    return {run for _, _, run in runs(text, sizes)}


def runs(text: str, sizes: Collection[int] = (WORDS,)) -> Iterator[tuple[int, int, str]]:
    """Where each run of so many words begins and ends, and its words with a space between."""
    words = list(WORD.finditer(NO_WORD.sub(_blank, text)))
    plain = [LETTER.sub(_letter, word[0]) for word in words]
    for size in sizes:
        for first in range(len(words) - size + 1):
            last = first + size
            yield words[first].start(), words[last - 1].end(), " ".join(plain[first:last])


def sizes_of(wanted: Iterable[str]) -> set[int]:
    """How many words these runs have."""
    return {run.count(" ") + 1 for run in wanted}


def own_grams(texts: Iterable[str], reads: Iterable[Artifact], gone: Collection[str]) -> set[str]:
    """The runs of erased texts, of which a short one is a single run, that no row of these `read`
    artifacts has but those with the ids that are `gone`.
    """
    found = set[str]()
    for text in texts:
        words = sum(1 for _ in runs(text, (1,)))
        found |= grams(text, (min(words, WORDS),) if words >= SHORTEST else ())
    sizes = sizes_of(found)
    for read in reads:
        for batch in read_batches(read, ["id", "text"]):
            for id, text in zip(batch["id"].to_pylist(), batch["text"].to_pylist(), strict=True):
                if id not in gone:
                    found -= grams(text, sizes)
    return found


def holders(folder: Path, wanted: set[str], left_out: Collection[Path]) -> list[Path]:
    """The files below a folder, but for some folders, that hold one of these runs: as text, as
    Parquet, or in a database.
    """
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    inside = (path for path in paths if not any(path.is_relative_to(out) for out in left_out))
    sizes = sizes_of(wanted)
    return [
        path for path in inside if any(not wanted.isdisjoint(grams(t, sizes)) for t in _texts(path))
    ]


def shards_hold(shards: Artifact, tokenizer: Artifact, wanted: set[str]) -> bool:
    """Whether the text of some shards has one of these runs."""
    encoder, sizes = load(tokenizer), sizes_of(wanted)
    for split in SPLITS:
        stream = TokenStream(shards, split)
        for start in range(0, len(stream), TOKENS):
            piece = stream.span(start, min(start + TOKENS + OVERLAP, len(stream)))
            text = encoder.decode(stream.living(piece).tolist())
            if not wanted.isdisjoint(grams(text, sizes)):
                return True
    return False


def _texts(path: Path) -> Iterator[str]:
    """What a file holds, in pieces."""
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        strings = [f.name for f in table.schema if f.type in (pa.string(), pa.large_string())]
        for name in strings:
            yield from (text for text in table[name].to_pylist() if text)
    elif path.suffix not in WEIGHTS:
        if is_database(path):
            # Its pages alone would cut texts, and join what stands in two columns.
            yield from _cells(path)
        with path.open("rb") as file:
            while piece := file.read(PIECE):
                yield (piece + file.read(OVERLAP * 8)).decode(errors="ignore")
                if len(piece) == PIECE:
                    file.seek(-OVERLAP * 8, 1)


def is_database(path: Path) -> bool:
    """Whether it is one of SQLite."""
    with path.open("rb") as file:
        return file.read(len(SQLITE)) == SQLITE


def columns(database: sqlite3.Connection) -> Iterator[tuple[str, str, list[str]]]:
    """Table, column and the texts in it, each once."""
    names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    for (table,) in names:
        for _, column, *_ in database.execute(f'PRAGMA table_info("{table}")').fetchall():
            try:
                rows = database.execute(f'SELECT DISTINCT "{column}" FROM "{table}"')  # noqa: S608
                yield table, column, [value for (value,) in rows if isinstance(value, str)]
            except sqlite3.OperationalError:  # of a table that an extension keeps
                continue


def _cells(path: Path) -> Iterator[str]:
    with closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as database:
        for _, _, texts in columns(database):
            yield from texts


def _blank(match: re.Match[str]) -> str:
    """What stands for no letter, as so many spaces: places in the text stay."""
    letter = LETTER.fullmatch(match[0])
    return match[0] if letter and _letter(letter).isalnum() else " " * len(match[0])


def _letter(match: re.Match[str]) -> str:
    return chr(int(match[1], 16))
