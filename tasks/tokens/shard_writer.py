"""Writes the files of a shards artifact document by document; holds at most one shard per split."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa

from cluster.errors import BadInput

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

    pending: "array[int]"
    documents: int = 0
    tokens: int = 0
    bytes: int = 0
    shards: list[int] = field(default_factory=list)

    def facts(self) -> dict[str, Any]:
        """Totals of the split and the tokens of each of its shards."""
        names = ("documents", "tokens", "bytes", "shards")
        return {name: getattr(self, name) for name in names}


class ShardWriter:
    """Appends documents to shards; a context manager that writes what is pending at its end."""

    def __init__(self, folder: Path, splits: Sequence[str], vocab_size: int, shard_tokens: int):
        self.folder, self.shard_tokens = folder, shard_tokens
        self.dtype = token_dtype(vocab_size)
        self.splits = {name: Split(array(self.dtype.char)) for name in splits}
        self._counts = np.zeros(vocab_size, np.int64)
        self._rows: list[tuple[Any, ...]] = []
        self._documents = pa.ipc.new_file(str(folder / "documents.arrow"), DOCUMENTS)

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            for name, split in self.splits.items():
                if split.pending:
                    self._write_shard(name, split)
            self._write_rows()
        self._documents.close()

    @property
    def documents(self) -> int:
        """Documents added."""
        return sum(split.documents for split in self.splits.values())

    @property
    def tokens(self) -> int:
        """Tokens added."""
        return sum(split.tokens for split in self.splits.values())

    @property
    def ids_used(self) -> int:
        """How many ids of the vocabulary occur in the shards written."""
        return int(np.count_nonzero(self._counts))

    def add(self, name: str, ids: list[int], *, size: int, document: str, source: str) -> None:
        """Append one document of `size` bytes to a split. Raises BadInput for an id that is not in
        the vocabulary, which a type too small for it would silently turn into another.
        """
        if not 0 <= min(ids) <= max(ids) < len(self._counts):
            raise BadInput(
                f"document {document} has token id {max(ids)}, the vocabulary has "
                f"{len(self._counts)}; run `headrace run --rebuild tokenizer`"
            )
        split = self.splits[name]
        start = len(split.pending)
        split.pending.extend(ids)
        split.documents, split.tokens = split.documents + 1, split.tokens + len(ids)
        split.bytes += size
        self._rows.append((name, len(split.shards), start, len(ids), size, document, source))
        if len(self._rows) >= DOCUMENT_ROWS:
            self._write_rows()
        if len(split.pending) >= self.shard_tokens:
            self._write_shard(name, split)

    def _write_shard(self, name: str, split: Split) -> None:
        tokens = np.frombuffer(split.pending, self.dtype)
        batch = pa.record_batch([pa.array(tokens)], names=["tokens"])
        path = self.folder / f"{name}-{len(split.shards):05d}.arrow"
        with pa.ipc.new_file(str(path), batch.schema) as file:
            file.write_batch(batch)
        self._counts += np.bincount(tokens, minlength=len(self._counts))
        split.shards.append(len(tokens))
        split.pending = array(self.dtype.char)

    def _write_rows(self) -> None:
        columns = list(zip(*self._rows, strict=True)) or [()] * len(DOCUMENTS)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, DOCUMENTS, strict=True)]
        self._documents.write_batch(pa.record_batch(arrays, schema=DOCUMENTS))
        self._rows = []


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    """The smallest type that holds every id: uint16, or uint32 for more than 65,536 ids.

    Raises BadInput above 2**32.
    """
    if vocab_size > 1 << 32:
        raise BadInput(f"a vocabulary of {vocab_size} does not fit 32 bits")
    return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.uint32)
