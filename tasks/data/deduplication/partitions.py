"""Partitions: the candidates of every block, sorted by what has to be looked at together.

Each block writes one Arrow file with a record batch per partition. A worker then reads its
partition from all of these files, a piece at a time.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cluster.handover import here
from tasks.data.deduplication.candidates import NONE
from tasks.data.deduplication.normal import normalise
from tasks.data.deduplication.phases import load
from tasks.data.deduplication.signatures import Block, key_columns

PIECE_BYTES = 32 << 20
PARTITIONS = b"partitions"


@dataclass(frozen=True)
class Selection:
    """The candidates of one block: partition and twin mark of each of its rows."""

    block: Block
    signatures: Path
    partitions: npt.NDArray[np.int32]
    twins: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Partition:
    """The number of a partition and the files in which it may be, in the order of the blocks."""

    number: int
    paths: tuple[Path, ...]

    def pieces(self, columns: list[str]) -> Iterator[pa.Table]:
        """These columns of its documents in order, about 32 MiB at a time."""
        pending: list[pa.RecordBatch] = []
        for batch in self._batches(columns):
            pending.append(batch)
            if sum(batch.nbytes for batch in pending) >= PIECE_BYTES:
                yield pa.Table.from_batches(pending).combine_chunks()
                pending = []
        if pending:
            yield pa.Table.from_batches(pending).combine_chunks()

    @cached_property
    def columns(self) -> list[str]:
        """The names of all columns."""
        with pa.ipc.open_file(str(here(self.paths[0]))) as reader:
            return list(reader.schema.names)

    def _batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        wanted = sorted(self.columns.index(name) for name in columns)
        options = pa.ipc.IpcReadOptions(included_fields=wanted, use_threads=False)
        for path in self.paths:
            # Read, not mapped: pages of a mapped file would count as memory until it is closed.
            with (
                pa.OSFile(str(here(path))) as source,
                pa.ipc.open_file(source, options=options) as reader,
            ):
                present = json.loads(reader.schema.metadata[PARTITIONS])
                if self.number in present:
                    yield reader.get_batch(present.index(self.number))


def pack_block(selection: Selection) -> pa.Table:
    """The candidates of a block, a chunk per partition.

    `number`, `fixed`, `source`, `content` (SHA-256 of the text) and `id` decide who stays; `twin`,
    `bytes`, `exact` and `band_...` find whom to compare; `text` is normalised.
    """
    rows = np.flatnonzero(selection.partitions != NONE)
    signatures = load(selection.signatures)
    table = pa.Table.from_batches(_candidates(selection), CANDIDATE_SCHEMA)
    table = table.append_column("twin", pa.array(selection.twins[rows]))
    for name in ("bytes", "exact", *key_columns(signatures.schema)):
        table = table.append_column(name, signatures[name].take(rows))
    partitions = selection.partitions[rows]
    # Stable, so that documents stay in their order within a partition.
    order = np.argsort(partitions, kind="stable")
    table = table.take(order).combine_chunks()
    return in_chunks(table, partitions[order])


def in_chunks(table: pa.Table, partitions: npt.NDArray[np.integer]) -> pa.Table:
    """The table with a chunk for each of the partitions, which are in ascending order."""
    present, starts = np.unique(partitions, return_index=True)
    ends = [*starts[1:], len(partitions)]
    batches = [
        batch
        for start, end in zip(starts, ends, strict=False)
        for batch in table.slice(start, end - start).to_batches()
    ]
    metadata = {PARTITIONS: json.dumps(present.tolist())}
    return pa.Table.from_batches(batches, table.schema).replace_schema_metadata(metadata)


CANDIDATE_SCHEMA = pa.schema(
    [
        ("number", pa.int64()),
        ("fixed", pa.bool_()),
        ("source", pa.string()),
        ("content", pa.binary(32)),
        ("id", pa.string()),
        ("text", pa.large_string()),
    ]
)


def _candidates(selection: Selection) -> Iterator[pa.RecordBatch]:
    block = selection.block
    for first, batch in block.batches(["id", "text", "source"]):
        begin = first - block.start
        chosen = selection.partitions[begin : begin + batch.num_rows] != NONE
        if not chosen.any():
            continue
        batch = batch.filter(pa.array(chosen))
        texts = batch["text"]
        hashes = [hashlib.sha256(text.as_buffer()).digest() for text in texts]
        columns = [
            pa.array(first + np.flatnonzero(chosen)),
            pa.array(np.full(len(batch), block.fixed)),
            batch["source"].cast(pa.string()),
            pa.array(hashes, pa.binary(32)),
            batch["id"].cast(pa.string()),
            normalise(texts),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=CANDIDATE_SCHEMA)
