"""Candidates: documents with the same hash, or the same key in a band, and what these connect.

Candidates that are connected are verified together. Components are packed into partitions of about
`PARTITION_BYTES` of text; a larger component is a partition of its own. Memory: 29 bytes per
document, and one column of the signatures at a time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tasks.data.deduplication.pairs import find, union
from tasks.data.deduplication.phases import load
from tasks.data.deduplication.sets import packed
from tasks.data.deduplication.signatures import concatenated, key_columns
from tasks.data.kernels import kernel
from tasks.data.kernels.buffers import Offsets
from tasks.data.kernels.words import Hashes

PARTITION_BYTES = 32 << 20
NONE = -1


@dataclass(frozen=True)
class Candidates:
    """By document: its partition (or NONE), and whether another one has the same hash."""

    partitions: npt.NDArray[np.int32]
    twins: npt.NDArray[np.bool_]

    @property
    def count(self) -> int:
        """How many partitions there are."""
        return int(self.partitions.max(initial=NONE)) + 1


def find_candidates(signatures: Sequence[Path], fixed: int, exact: bool, fuzzy: bool) -> Candidates:
    """Pack what may be duplicates into partitions.

    The first `fixed` documents are not to be removed: among themselves they are no candidates.
    """
    sizes = concatenated(signatures, "bytes").astype(np.int64)
    parents = np.arange(len(sizes))
    twins = np.zeros(len(sizes), np.bool_)
    if exact:
        join(concatenated(signatures, "exact"), np.arange(len(sizes)), parents, twins)
    if fuzzy:
        worded = np.flatnonzero(concatenated(signatures, "shingles"))
        unused = np.zeros(len(sizes), np.bool_)
        for column in key_columns(load(signatures[0]).schema):
            join(concatenated(signatures, column)[worded], worded, parents, unused)
    return Candidates(_pack(parents, sizes, fixed), twins)


def _pack(parents: Offsets, sizes: Offsets, fixed: int) -> npt.NDArray[np.int32]:
    _label(parents)
    members = np.bincount(parents, minlength=len(parents))
    newer = np.bincount(parents[fixed:], minlength=len(parents))
    wanted = np.flatnonzero((members > 1) & (newer > 0))
    weights = np.bincount(parents, sizes, len(parents))[wanted].astype(np.int64)
    numbers = np.full(len(parents), NONE, np.int32)
    numbers[wanted] = packed(weights, PARTITION_BYTES)
    return numbers[parents]


def join(
    keys: Hashes, documents: Offsets, parents: Offsets, repeated: npt.NDArray[np.bool_]
) -> None:
    """Connect the documents with equal keys, and mark them in `repeated`."""
    _join_equal(keys, np.argsort(keys), documents, parents, repeated)


@kernel
def _join_equal(
    keys: Hashes,
    order: Offsets,
    documents: Offsets,
    parents: Offsets,
    repeated: npt.NDArray[np.bool_],
) -> None:
    for j in range(1, len(order)):
        if keys[order[j]] == keys[order[j - 1]]:
            a, b = documents[order[j - 1]], documents[order[j]]
            union(parents, a, b)
            repeated[a] = repeated[b] = True


@kernel
def _label(parents: Offsets) -> None:
    for number in range(len(parents)):
        parents[number] = find(parents, number)
