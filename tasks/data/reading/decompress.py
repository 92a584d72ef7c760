"""Bytes of one file as chunks, decompressed by suffix; a damaged or hostile file is refused.

zstandard's own stream readers return short data for a truncated frame without an error, so zstd and
bzip2 go through Arrow's reader, which raises, and gzip through Python's, which also raises.
"""

import gzip
import os
import zlib
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any

import pyarrow as pa

from cluster.errors import BadInput
from tasks.data.reading.sources import open_regular

CHUNK_BYTES = 1 << 18
# Text compresses 3 to 20 times; a decompression bomb a thousand times and more.
MAX_RATIO = 200
RATIO_FREE_BYTES = 64 << 20


def read_chunks(path: Path) -> Iterator[bytes]:
    """The content of a regular file in chunks of at most 256 KiB, decompressed.

    Raises BadInput for a truncated stream, trailing junk, or more than 64 MiB that came out of
    less than 1/200 as many bytes.
    """
    with open_regular(path) as file:
        size, done = os.fstat(file.fileno()).st_size, 0
        try:
            reader = _reader(file, path.suffix)
            while chunk := reader.read(CHUNK_BYTES):
                done += len(chunk)
                _check_ratio(path, size, done)
                yield chunk
        except (OSError, EOFError, zlib.error) as error:
            raise BadInput(
                f"{path} is damaged: {error} after {done} bytes of text ({size} bytes on disk); "
                "fetch the file again, or take it out of the sources"
            ) from error


def _reader(file: BufferedReader, suffix: str) -> Any:
    if suffix == ".gz":
        return gzip.GzipFile(fileobj=file)
    if suffix in (".zst", ".bz2"):
        codec = {".zst": "zstd", ".bz2": "bz2"}[suffix]
        return pa.CompressedInputStream(pa.PythonFile(file, mode="r"), codec)
    return file


def _check_ratio(path: Path, size: int, done: int) -> None:
    if done > RATIO_FREE_BYTES and done > MAX_RATIO * size:
        raise BadInput(
            f"{path}: {size} bytes on disk became more than {done} bytes of text; a file may grow "
            f"{MAX_RATIO} times. Decompress it by hand if it is what it seems"
        )
