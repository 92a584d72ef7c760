"""Writes the files of a shards artifact; holds at most one shard per split and a few documents."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from cluster.errors import BadInput
from tasks.tokens.shards.facts import ShardFacts, SplitFacts
from tasks.tokens.shards.settings import SPLITS
from tasks.tokens.shards.tallies import tally_ids

DOCUMENTS = pa.schema(
    [
        pa.field("split", pa.string()),
        pa.field("shard", pa.int32()),
        pa.field("start", pa.int64()),
        pa.field("length", pa.int64()),
        pa.field("bytes", pa.int64()),
        pa.field("id", pa.string()),
        pa.field("source", pa.string()),
    ]
)
DOCUMENT_ROWS = 16_384


@dataclass
class Split:
    """What one split has got so far, and the tokens of its unfinished shard."""

    pending: list[np.ndarray] = field(default_factory=list)
    pending_tokens: int = 0
    documents: int = 0
    tokens: int = 0
    bytes: int = 0
    shards: list[int] = field(default_factory=list)

    def facts(self) -> SplitFacts:
        """Totals of the split and the tokens of each of its shards."""
        return SplitFacts(
            documents=self.documents, tokens=self.tokens, bytes=self.bytes, shards=self.shards
        )


class ShardWriter:
    """Appends documents to shards; a context manager that writes what is pending at its end."""

    def __init__(self, folder: Path, splits: Sequence[str], vocab_size: int, shard_tokens: int):
        self.folder, self.shard_tokens = folder, shard_tokens
        self.dtype = token_dtype(vocab_size)
        self.splits = {name: Split() for name in splits}
        self.counts = np.zeros(vocab_size, np.int64)
        """How often each id occurs in the shards written."""
        self._rows = [DOCUMENTS.empty_table()]
        self._waiting = 0
        self._documents = pa.ipc.new_file(str(folder / "documents.arrow"), DOCUMENTS)

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            for name, split in self.splits.items():
                if split.pending:
                    self._write_shard(name, split)
            self._documents.write_batch(_one_batch(pa.concat_tables(self._rows)))
        self._documents.close()

    def facts(self, eod: int) -> ShardFacts:
        """What was written; `eod` is the id that ends a document."""
        train, heldout = (self.splits[name].facts() for name in SPLITS)
        dtype, size = self.dtype.name, len(self.counts)
        return ShardFacts(train=train, heldout=heldout, vocab_size=size, dtype=dtype, eod=eod)

    @property
    def documents(self) -> int:
        """Documents added."""
        return sum(split.documents for split in self.splits.values())

    @property
    def tokens(self) -> int:
        """Tokens added."""
        return sum(split.tokens for split in self.splits.values())

    def extend(self, split_N: np.ndarray, tokens: np.ndarray, rows: pa.Table) -> None:
        """Append N documents: the name of each one's split, their tokens end to end, and their
        `id`, `source`, `bytes` and `length` in tokens.
        """
        length_N, size_N = rows["length"].to_numpy(), rows["bytes"].to_numpy()
        shard_N, start_N = np.empty(len(split_N), np.int32), np.empty(len(split_N), np.int64)
        for name, split in self.splits.items():
            mine_N = split_N == name
            shard_N[mine_N], start_N[mine_N] = self._place(
                name, tokens[np.repeat(mine_N, length_N)], length_N[mine_N]
            )
            split.documents += int(mine_N.sum())
            split.tokens += int(length_N[mine_N].sum())
            split.bytes += int(size_N[mine_N].sum())
        columns = {name: rows[name] for name in ("length", "bytes", "id", "source")}
        places = {"split": split_N, "shard": shard_N, "start": start_N}
        self._write_rows(pa.table(places | columns).select(DOCUMENTS.names).cast(DOCUMENTS))

    def _place(
        self, name: str, tokens: np.ndarray, length_N: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Append documents to one split: the shard of each and its start there. A shard is full
        with the document that reaches `shard_tokens`.
        """
        split, end_N = self.splits[name], np.cumsum(length_N)
        shard_N, start_N = np.empty(len(end_N), np.int32), np.empty(len(end_N), np.int64)
        first = begin = 0
        while first < len(end_N):
            room = self.shard_tokens - split.pending_tokens
            last = min(int(np.searchsorted(end_N, begin + room)) + 1, len(end_N))
            here, end = slice(first, last), int(end_N[last - 1])
            shard_N[here] = len(split.shards)
            start_N[here] = split.pending_tokens + end_N[here] - length_N[here] - begin
            split.pending.append(tokens[begin:end])
            split.pending_tokens += end - begin
            if split.pending_tokens >= self.shard_tokens:
                self._write_shard(name, split)
            first, begin = last, end
        return shard_N, start_N

    def _write_shard(self, name: str, split: Split) -> None:
        tokens = np.concatenate(split.pending)
        batch = pa.record_batch([pa.array(tokens)], names=["tokens"])
        path = self.folder / f"{name}-{len(split.shards):05d}.arrow"
        with pa.ipc.new_file(str(path), batch.schema) as file:
            file.write_batch(batch)
        tally_ids(tokens, self.counts)
        split.shards.append(len(tokens))
        split.pending, split.pending_tokens = [], 0

    def _write_rows(self, rows: pa.Table) -> None:
        self._rows.append(rows)
        self._waiting += rows.num_rows
        if self._waiting < DOCUMENT_ROWS:
            return
        waiting = pa.concat_tables(self._rows)
        while waiting.num_rows >= DOCUMENT_ROWS:
            self._documents.write_batch(_one_batch(waiting[:DOCUMENT_ROWS]))
            waiting = waiting[DOCUMENT_ROWS:]
        self._rows, self._waiting = [waiting], waiting.num_rows


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    """The smallest type that holds every id: uint16, or uint32 for more than 65,536 ids.

    Raises BadInput above 2**32.
    """
    if vocab_size > 1 << 32:
        raise BadInput(f"a vocabulary of {vocab_size} does not fit 32 bits")
    return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.uint32)


def narrow(ids: np.ndarray, vocab_size: int) -> np.ndarray:
    """Ids in the type for the vocabulary. Raises BadInput for one that is not in the vocabulary,
    which a type too small for it would silently turn into another.
    """
    if len(ids) and not 0 <= ids.min() <= ids.max() < vocab_size:
        raise BadInput(
            f"token id {ids.max() if ids.min() >= 0 else ids.min()} is not in the vocabulary of "
            f"{vocab_size}; run `headrace run RECIPE --rebuild tokenizer`"
        )
    return ids.astype(token_dtype(vocab_size))


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], DOCUMENTS)
