"""Where rows are in the artifacts made from them: kept, set aside, or as documents of shards."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cluster.artifact import Artifact
from tasks.data.text import PATTERN, file_batches
from tasks.tokens.shards.documents import FILE, read_documents, starts
from tasks.tokens.shards.settings import SPLITS

REJECTS = "rejects-*.parquet"


@dataclass(frozen=True)
class Document:
    """A document of a split: where in the stream it begins, and behind its end token ends."""

    id: str
    split: str
    start: int
    stop: int


@dataclass
class Places:
    """What of some rows an artifact has: `kept` ids, `rejected` ids with their reason, those that
    went as `copies` of one of them, `documents` of shards.
    """

    artifact: Artifact
    kept: set[str] = field(default_factory=set)
    rejected: dict[str, str] = field(default_factory=dict)
    copies: dict[str, str] = field(default_factory=dict)
    documents: list[Document] = field(default_factory=list)

    @property
    def holds(self) -> int:
        """How many of the rows it has."""
        return len(self.kept) + len(self.documents)

    def told(self, seen: int = 0) -> dict[str, Any]:
        """As JSON has them; what has no rows, and as a training `seen` no sample with one, only
        descends from what has.
        """
        about = self.artifact
        ways = {"holds": self.holds, "rejected": self.rejected, "saw": seen}
        how = next((way for way, some in ways.items() if some), "descends")
        found = {"artifact": about.name, "stage": about.manifest.stage, "how": how}
        return {**found, "rows": self.holds, "rejected": dict(Counter(self.rejected.values()))}


def places_of(artifact: Artifact, ids: Collection[str]) -> Places:
    """What an artifact has of the rows with these ids. Raises BadInput for a damaged one."""
    found = Places(artifact)
    wanted = pa.array(sorted(ids), pa.string())
    for file in artifact.files(PATTERN):
        for batch in file_batches(file, ["id"]):
            found.kept |= set(batch["id"].filter(pc.is_in(batch["id"], wanted)).to_pylist())
    for file in artifact.files(REJECTS):
        for batch in file_batches(file):
            _add_rejects(found, batch, wanted)
    if FILE in artifact.manifest.files and artifact.manifest.stage == "shards":
        for split in SPLITS:
            found.documents += documents_of(artifact, split, wanted)
    return found


def documents_of(shards: Artifact, split: str, ids: pa.Array) -> list[Document]:
    """The documents of a split with these ids."""
    table = read_documents(shards, split, "id", "shard", "start", "length")
    begin_N = pa.array(starts(shards, split, table))
    mine = pc.is_in(table["id"], ids)
    columns = (table["id"], begin_N, table["length"])
    rows = zip(*(column.filter(mine).to_pylist() for column in columns), strict=True)
    return [Document(id, split, begin, begin + length) for id, begin, length in rows]


def _add_rejects(found: Places, batch: pa.RecordBatch, wanted: pa.Array) -> None:
    mine = batch.filter(pc.is_in(batch["id"], wanted))
    found.rejected |= dict(zip(mine["id"].to_pylist(), mine["reason"].to_pylist(), strict=True))
    if "copy_of" in batch.schema.names:
        others = batch.filter(pc.is_in(batch["copy_of"], wanted))
        pairs = zip(others["id"].to_pylist(), others["copy_of"].to_pylist(), strict=True)
        found.copies |= dict(pairs)
