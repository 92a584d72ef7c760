"""Shards made of numbers: every training token says where it stands."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from cluster.artifact import Artifact
from cluster.manifest import Ledger
from cluster.stage import build, stage
from cluster.store import Draft, Store
from tasks.tokens.packing.settings import PackingKind, PackingSettings
from tasks.tokens.packing.stage import packing
from tasks.tokens.shards.writer import ShardWriter, narrow

EOD = 0


def append(
    writer: ShardWriter, split: str, ids: Sequence[int], *, size: int, document: str, source: str
) -> None:
    """Append one document of `size` bytes to a split. Raises BadInput, see `narrow`."""
    row = {"id": [document], "source": [source], "bytes": [size], "length": [len(ids)]}
    tokens = narrow(np.array(ids, np.int64), len(writer.counts))
    writer.extend(np.array([split]), tokens, pa.table(row))


@stage(version=1, name="shards")
def write_documents(
    documents: list[list[int]], sources: str, shard_tokens: int, draft: Draft
) -> None:
    """Documents of tokens 1, 2, ... in the train split; the source of each is a letter."""
    vocab = 1 << 16
    with ShardWriter(draft.path, ["train", "heldout"], vocab, shard_tokens) as writer:
        for number, (ids, source) in enumerate(zip(documents, sources, strict=True)):
            name, whole = f"d{number}", [*ids, EOD]
            append(writer, "train", whole, size=len(ids), document=name, source=source)
        append(writer, "heldout", [1, 2, EOD], size=2, document="held", source="a")
    draft.facts, draft.rows = writer.facts(EOD).noted(), writer.documents
    draft.ledger = Ledger.model_validate({"in": writer.documents, "out": writer.documents})


def shards_of(
    root: Path, lengths: list[int], sources: str | None = None, shard_tokens: int = 1000
) -> Artifact:
    """Shards of documents of some lengths, in tokens with the end, numbered through."""
    documents, first = [], 1
    for length in lengths:
        documents.append(list(range(first, first + length - 1)))
        first += length - 1
    sources = sources or "a" * len(lengths)
    return build(
        write_documents,
        Store(root),
        documents=documents,
        sources=sources,
        shard_tokens=shard_tokens,
    )


def packed(root: Path, shards: Artifact, kind: PackingKind, context: int) -> Artifact:
    """The packing of some shards."""
    settings = PackingSettings(kind=kind, context=context)
    return build(packing, Store(root), shards=shards, settings=settings)
