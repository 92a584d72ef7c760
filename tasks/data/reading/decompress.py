"""Bytes of one file as chunks, decompressed by suffix; a damaged or hostile file is refused.

zstandard's own stream readers return short data for a truncated frame without an error, so zstd and
bzip2 go through Arrow's reader, which raises, and gzip through Python's, which also raises.
"""

import gzip
import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from cluster.errors import BadInput
from tasks.data.reading.encodings import as_utf8
from tasks.data.reading.formats import compression, data_suffix
from tasks.data.reading.sources import open_regular

CHUNK_BYTES = 1 << 18
# Text compresses 3 to 20 times; a decompression bomb a thousand times and more.
MAX_RATIO = 200
RATIO_FREE_BYTES = 64 << 20
DAMAGE = (
    OSError,
    EOFError,
    NotImplementedError,  # a zip member in a compression that Python lacks
    zlib.error,
    lzma.LZMAError,
    tarfile.TarError,
    zipfile.BadZipFile,
)


@dataclass(frozen=True)
class Entry:
    """What is read as one file: a file of a source, or a member of an archive.

    `name` is its path below the source's root, a member's behind that of its archive; `shown` is
    what messages call it; `size` is bytes before decompression; `line` is the number of its first
    line; `encoding` that of its text. Members can only be read forward.
    """

    name: str
    shown: str
    size: int
    file: IO[bytes]
    seekable: bool = False
    line: int = 1
    encoding: str | None = None

    @property
    def format(self) -> str:
        """The suffix that says how to read it, without compression."""
        return data_suffix(self.name)

    def chunks(self) -> Iterator[bytes]:
        """The content in chunks of at most 256 KiB, decompressed.

        Raises BadInput for a truncated stream, trailing junk, or more than 64 MiB that came out of
        less than 1/200 as many bytes.
        """
        done = 0
        try:
            reader = _reader(self.file, compression(self.name))
            while chunk := reader.read(CHUNK_BYTES):
                done += len(chunk)
                check_ratio(self.shown, self.size, done)
                yield chunk
        except DAMAGE as error:
            after = f"{done} bytes of text ({self.size} bytes on disk)"
            raise damaged(self.shown, error, after) from error

    def text_chunks(self) -> Iterator[bytes]:
        """The same in UTF-8, lines ended by LF; see `encodings.as_utf8`."""
        return as_utf8(self.chunks(), self.encoding)


class ChunkFile:
    """Chunks as a file that can only be read forward; knows how it ended."""

    def __init__(self, chunks: Iterator[bytes]):
        self.total = 0
        self.zeros = 0
        self.last = b""
        self._chunks = chunks
        self._rest = memoryview(b"")

    def read(self, size: int) -> bytes:
        """At most `size` bytes; none at the end."""
        if not self._rest:
            chunk = next(self._chunks, b"")
            self._count(chunk)
            self._rest = memoryview(chunk)
        found, self._rest = self._rest[:size], self._rest[size:]
        return bytes(found)

    def tell(self) -> int:
        """Bytes read so far."""
        return self.total - len(self._rest)

    def _count(self, chunk: bytes) -> None:
        zeros = len(chunk) - len(chunk.rstrip(b"\0"))
        self.zeros = zeros + (self.zeros if zeros == len(chunk) else 0)
        self.total += len(chunk)
        self.last = (self.last + chunk[-4:])[-4:]


def read_chunks(path: Path) -> Iterator[bytes]:
    """The content of a regular file in chunks of at most 256 KiB, decompressed; see `Entry`."""
    with open_regular(path) as file:
        yield from Entry(path.name, str(path), os.fstat(file.fileno()).st_size, file).chunks()


class Damaged(BadInput):
    """A file or archive that is cut or damaged; a source may skip it."""


def damaged(shown: str, error: BaseException, after: str) -> Damaged:
    """What to raise when a library finds a file damaged after this much of it."""
    return Damaged(
        f"{shown} is damaged: {error} after {after}; fetch the file again, take it out of the "
        "sources, or leave it out with `on_damaged: skip` in the source"
    )


def check_ratio(shown: str, size: int, done: int) -> None:
    """Raise BadInput when `size` bytes became `done`, more than text can."""
    if done > RATIO_FREE_BYTES and done > MAX_RATIO * size:
        raise BadInput(
            f"{shown}: {size} bytes on disk became more than {done} bytes of text; a file may grow "
            f"{MAX_RATIO} times. Decompress it by hand if it is what it seems"
        )


def _reader(file: IO[bytes], suffix: str) -> Any:
    if suffix == ".gz":
        return gzip.GzipFile(fileobj=file)
    if suffix in (".zst", ".bz2"):
        codec = {".zst": "zstd", ".bz2": "bz2"}[suffix]
        return pa.CompressedInputStream(pa.PythonFile(file, mode="r"), codec)
    return file
