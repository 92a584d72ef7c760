"""Shards in which each token of some documents is a tombstone: neither predicted nor seen, so that
no other sample moves. A document's end token stays, as the next document begins with it.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cluster.artifact import Artifact
from cluster.manifest import Ledger
from cluster.store import Draft
from tasks.tokens.shards.documents import FILE
from tasks.tokens.shards.facts import ShardFacts, SplitFacts
from tasks.tokens.shards.settings import SPLITS
from tasks.tokens.shards.writer import token_dtype

GONE = "(erased)"
Rows = Sequence[dict[str, Any]]


def buried(old: Artifact, ids: Collection[str], draft: Draft) -> None:
    """The shards with tombstones for the documents of these ids."""
    facts = ShardFacts.of(old)
    dtype = token_dtype(facts.vocab_size + 1)  # wide enough for an id that no token has
    tombstone = int(np.iinfo(dtype).max) if facts.tombstone is None else facts.tombstone
    with pa.OSFile(str(old.file(FILE))) as file:
        documents = pa.ipc.open_file(file).read_all()
    mine = pc.is_in(documents["id"], pa.array(sorted(ids), pa.string()))
    dead: Rows = documents.filter(mine).to_pylist()
    _write(draft.path / FILE, _nameless(documents, mine))
    splits = {}
    for split in SPLITS:
        rows = [row for row in dead if row["split"] == split]
        splits[split] = _less(facts.split(split), rows)
        for number in range(len(splits[split].shards)):
            name = f"{split}-{number:05d}.arrow"
            with pa.OSFile(str(old.file(name))) as file:
                tokens = pa.ipc.open_file(file).read_all()["tokens"].to_numpy().astype(dtype)
            for row in rows:
                if row["shard"] == number:
                    tokens[row["start"] : row["start"] + row["length"] - 1] = tombstone
            _write(draft.path / name, pa.table({"tokens": tokens}))
    told = facts.model_copy(update={**splits, "dtype": dtype.name, "tombstone": tombstone})
    draft.facts = old.manifest.facts | told.noted()
    _account(old, draft, len(dead), splits["train"].tokens)


def _account(old: Artifact, draft: Draft, gone: int, tokens: int) -> None:
    about, ledger = old.manifest, old.manifest.ledger
    assert ledger is not None and about.rows is not None, f"{old.name} has no ledger"
    draft.rows, draft.tokens, draft.metrics = about.rows - gone, tokens, dict(about.metrics)
    balance = {"in": ledger.rows_in - gone, "out": ledger.rows_out - gone}
    draft.ledger = Ledger.model_validate(balance | {"rejects": ledger.rejects})


def _less(split: SplitFacts, rows: Rows) -> SplitFacts:
    """A split whose tokens and bytes are those of the other documents; its places stay."""
    gone = {key: sum(row[column] for row in rows) for key, column in COUNTED.items()}
    return split.model_copy(update={key: getattr(split, key) - n for key, n in gone.items()})


COUNTED = {"tokens": "length", "bytes": "bytes"}


def _nameless(documents: pa.Table, mine: pa.ChunkedArray) -> pa.Table:
    """The documents in their places, without the ids and bytes of those that are gone."""
    for name, value in (("id", GONE), ("bytes", 0)):
        index, column = documents.schema.get_field_index(name), documents[name]
        emptied = pc.if_else(mine, pa.scalar(value, column.type), column)
        documents = documents.set_column(index, documents.schema.field(name), emptied)
    return documents


def _write(path: Path, table: pa.Table) -> None:
    """One record batch, as readers of shards take it."""
    (batch,) = table.combine_chunks().to_batches()
    with pa.ipc.new_file(str(path), table.schema) as file:
        file.write_batch(batch)
