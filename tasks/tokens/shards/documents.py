"""Where the documents of a split lie in its token stream, from `documents.arrow`."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cluster.artifact import Artifact
from cluster.errors import BadInput
from tasks.tokens.shards.facts import ShardFacts

FILE = "documents.arrow"


class DocumentMap:
    """The places of all documents in one split's stream."""

    def __init__(self, shards: Artifact | Path, split: str):
        artifact = Artifact.load(shards) if isinstance(shards, Path) else shards
        table = read_documents(artifact, split, "shard", "start", "length")
        self.starts = starts(artifact, split, table)
        self._ends = self.starts + table["length"].to_numpy()

    def apart(self, one: int, other: int, length: int) -> bool:
        """Whether two stretches of `length` tokens, by their starts, share no document."""
        first, second = sorted((one, other))
        last = np.searchsorted(self._ends, first + length - 1, side="right")
        begin = np.searchsorted(self._ends, second, side="right")
        return bool(last < begin)


def documents_by_source(shards: Artifact, split: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Starts in the split's stream and lengths, [N] each, of every source's documents, in order."""
    table = read_documents(shards, split, "shard", "start", "length", "source")
    start_N, length_N = starts(shards, split, table), table["length"].to_numpy()
    codes = pc.dictionary_encode(table["source"].combine_chunks())
    source_N, found = codes.indices.to_numpy(), {}
    for index, name in sorted(enumerate(codes.dictionary.to_pylist()), key=lambda pair: pair[1]):
        own = np.flatnonzero(source_N == index)
        found[name] = (start_N[own], length_N[own])
    return found


def read_documents(shards: Artifact, split: str, *columns: str) -> pa.Table:
    """Some columns of a split's documents, in the order of its stream.

    Raises BadInput when the file is missing or changed, or lacks documents.
    """
    path = str(shards.file(FILE))
    with pa.OSFile(path) as file:
        schema = pa.ipc.open_file(file).schema
    names = {"split", "shard", "start", *columns}
    wanted = sorted(schema.get_field_index(name) for name in names)
    with pa.OSFile(path) as file:
        options = pa.ipc.IpcReadOptions(included_fields=wanted)
        table = pa.ipc.open_file(file, options=options).read_all()
    table = table.filter(pc.equal(table["split"], split))
    if len(table) != (said := ShardFacts.of(shards).split(split).documents):
        raise BadInput(
            f"{path} has {len(table)} documents of split {split}, its manifest says {said}; run "
            "`headrace run RECIPE --rebuild shards`"
        )
    table = table.sort_by([("shard", "ascending"), ("start", "ascending")])
    return table.select(columns)


def starts(shards: Artifact, split: str, table: pa.Table) -> np.ndarray:
    """Where in the stream of the split each document begins, [N], from `shard` and `start`."""
    sizes = np.array(ShardFacts.of(shards).split(split).shards, np.int64)
    begins = np.cumsum(sizes) - sizes
    found: np.ndarray = begins[table["shard"].to_numpy()] + table["start"].to_numpy()
    return found
