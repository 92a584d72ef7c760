"""What is remembered of each document to find its duplicates: 16 + 8 x bands bytes.

The signatures of a block are a table in the order of its rows. Those of the documents that a
`dedup` artifact keeps lie in it as `index-NNNNN.arrow`, one for each `text-NNNNN-*.parquet`: later
text is deduplicated against them.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cluster.artifact import Artifact, DataFile
from cluster.errors import BadInput
from tasks.data.deduplication.minhash import Family, band_keys, signatures
from tasks.data.deduplication.normal import digests, normalise
from tasks.data.deduplication.phases import load
from tasks.data.text import PATTERN, check_rows, file_batches, named_damage

INDEX = "index-*.arrow"


@dataclass(frozen=True)
class Block:
    """The rows that one worker takes at a time: consecutive files of a text artifact, whose first
    row is number `start` among those of all blocks.

    `index` has their signatures where an earlier artifact holds them; its documents stay.
    """

    paths: tuple[DataFile | Path, ...]
    start: int
    rows: int
    index: Path | None = None

    @property
    def fixed(self) -> bool:
        """Whether its documents were kept before."""
        return self.index is not None

    @property
    def size(self) -> int:
        """About how many bytes of text."""
        return 3 * sum(_bytes_of(file) for file in self.paths)

    def batches(self, columns: list[str] | None = None) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Its rows in order, with the number of the first of each batch."""
        number = self.start
        for path in self.paths:
            for batch in file_batches(path, columns):
                yield number, batch
                number += batch.num_rows


def blocks_of(text: Artifact, start: int, indexed: bool = False) -> list[Block]:
    """The blocks of a text artifact, numbered from `start`.

    Raises BadInput when rows are missing, or the index of an earlier artifact is not what was
    written.
    """
    found, first = [], start
    files = text.files(PATTERN)
    for stem, paths in groupby(files, lambda file: file.path.name.rsplit("-", 1)[0]):
        block = block_of(list(paths), start)
        if indexed:
            block = replace(block, index=_index(text, stem.replace("text", "index"), block.rows))
        found.append(block)
        start += block.rows
    check_rows(text, start - first)
    return found


def block_of(files: Sequence[DataFile | Path], start: int = 0) -> Block:
    """The block in these files."""
    rows = 0
    for file in files:
        with named_damage(path_of(file)), _opened(file) as source:
            rows += pq.read_metadata(source).num_rows
    return Block(tuple(files), start, rows)


def path_of(file: DataFile | Path) -> Path:
    """Where a file lies."""
    return file.path if isinstance(file, DataFile) else file


def _bytes_of(file: DataFile | Path) -> int:
    return file.record.size if isinstance(file, DataFile) else file.stat().st_size


def _opened(file: DataFile | Path) -> IO[bytes]:
    """A file to read some bytes of; the block that they are in is not fetched for that."""
    return file.open() if isinstance(file, DataFile) else file.open("rb")


def signature_schema(bands: int) -> pa.Schema:
    """Hash and length in bytes of the normalised text, number of shingles, a key for each band."""
    keys = [(f"band_{band:03d}", pa.uint64()) for band in range(bands)]
    return pa.schema(
        [("exact", pa.uint64()), ("bytes", pa.uint32()), ("shingles", pa.uint32()), *keys]
    )


def key_columns(schema: pa.Schema) -> list[str]:
    """The columns whose equal values make candidates of near duplicates."""
    return [name for name in schema.names if re.fullmatch(r"band_\d+", name)]


def sign(texts: pa.Array, family: Family | None) -> pa.RecordBatch:
    """The signatures of some texts; without a family only what exact duplicates need."""
    normal = normalise(texts)
    lengths = np.diff(np.frombuffer(normal.buffers()[1], np.int64, len(normal) + 1))
    columns = [digests(normal), lengths.astype(np.uint32)]
    if family:
        signed, counts = signatures(normal, family)
        columns += [counts.astype(np.uint32), *band_keys(signed, family)]
    else:
        columns.append(np.zeros(len(normal), np.uint32))
    schema = signature_schema(family.bands if family else 0)
    return pa.RecordBatch.from_arrays([pa.array(c) for c in columns], schema=schema)


def sign_block(family: Family | None, block: Block) -> pa.Table:
    """The signatures of a block, computed or as the earlier artifact has them."""
    schema = signature_schema(family.bands if family else 0)
    if block.index:
        return load(block.index).select(schema.names)
    made = (sign(batch["text"], family) for _, batch in block.batches(["text"]))
    return pa.Table.from_batches(made, schema).combine_chunks()


def _index(text: Artifact, stem: str, rows: int) -> Path:
    try:
        path = text.file(f"{stem}.arrow")
    except BadInput as error:
        raise BadInput(
            f"{error}; it is the index of {text.name}, which this run deduplicates against"
        ) from error
    found = load(path).num_rows
    assert found == rows, f"{path} has {found} rows, its text {rows}"
    return path


def concatenated(paths: Sequence[Path], column: str) -> np.ndarray:
    """One column of all blocks."""
    return np.concatenate([load(path)[column].to_numpy() for path in paths])


def keep_signatures(work: tuple[Path, np.ndarray]) -> pa.Table:
    """The signatures of a block without those of the rows to remove."""
    path, removed = work
    table = load(path)
    kept = np.ones(table.num_rows, np.bool_)
    kept[removed] = False
    return table.filter(pa.array(kept)).combine_chunks()
