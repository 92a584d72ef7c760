"""A large file of lines as parts of whole lines, so that several workers read it side by side."""

from collections.abc import Iterator
from typing import IO, NamedTuple

from tasks.data.reading.formats import LINES, compression
from tasks.data.reading.settings import SourceSettings
from tasks.data.reading.sources import SourceFile, open_regular

PART_BYTES = 64 << 20
CHUNK_BYTES = 1 << 20
SPLIT = (".jsonl", ".ndjson", LINES)


class Part(NamedTuple):
    """Bytes `start` to `end` of a file, the first of which begins line `line`."""

    start: int
    end: int
    line: int


def parts(file: SourceFile, settings: SourceSettings) -> list[Part | None]:
    """The parts of a file, of `PART_BYTES` or a little more; [None] for one read as a whole.

    Whole stays what is small, compressed, of another encoding, or no format of lines, and a file
    whose rows have ids: these are made unique within a file.
    """
    suffix = f".{settings.format}" if settings.format else file.format
    lined = suffix in SPLIT and not compression(file.name) and settings.id is None
    lined = lined and settings.encoding is None
    if not lined or file.size <= 2 * PART_BYTES:
        return [None]
    return list(_parts(file))


def _parts(file: SourceFile) -> Iterator[Part]:
    """Cut behind the first end of a line from each multiple of `PART_BYTES` on."""
    start, line, at, number = 0, 1, 0, 1
    with open_regular(file.path) as raw:
        while chunk := raw.read(CHUNK_BYTES):
            wanted = max(0, start + PART_BYTES - 1 - at)
            cut = chunk.find(b"\n", wanted) + 1 if wanted < len(chunk) else 0
            if cut:
                lines = chunk.count(b"\n", 0, cut)
                yield Part(start, at + cut, line)
                start, line = at + cut, number + lines
            number += chunk.count(b"\n")
            at += len(chunk)
    if start < at:
        yield Part(start, at, line)


class Stretch:
    """The next `size` bytes of an open file, as a file."""

    def __init__(self, file: IO[bytes], size: int):
        self._file, self._left = file, size

    def read(self, size: int) -> bytes:
        """At most `size` bytes; none at the end of the stretch."""
        found = self._file.read(min(size, self._left))
        self._left -= len(found)
        return found
