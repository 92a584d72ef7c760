"""The shingle sets of many documents, in memory or in a file, and the comparison of those that
share a bucket.
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO

import numpy as np

from tasks.data.blocks import full_disk_named
from tasks.data.deduplication.pairs import NearPairs
from tasks.data.kernels import kernel
from tasks.data.kernels.buffers import Offsets
from tasks.data.kernels.words import Hashes

SETS_BYTES = 64 << 20
Buckets = tuple[Offsets, Offsets]


class ShingleSets:
    """Sorted sets of hashes, 8 bytes each, by document; beyond `SETS_BYTES` in a nameless file."""

    def __init__(self, size: int, folder: Path):
        self.lengths = np.zeros(size, np.int64)
        self._starts = np.zeros(size, np.int64)
        self._folder = folder
        self._parts: list[Hashes] = []
        self._total = 0
        self._file: IO[bytes] | None = None

    def add(self, documents: Offsets, values: Hashes, offsets: Offsets) -> None:
        """Take in the sets of some documents."""
        self.lengths[documents] = np.diff(offsets)
        self._starts[documents] = self._total + offsets[:-1]
        self._total += len(values)
        self._parts.append(values)
        if self._file is not None or 8 * self._total > SETS_BYTES:
            self._spool()

    def take(self, documents: Offsets) -> tuple[Hashes, Offsets]:
        """The sets of these documents, one after another, and their offsets."""
        ends = np.concatenate([[0], np.cumsum(self.lengths[documents])])
        out = np.empty(ends[-1], np.uint64)
        if self._file is None:
            self._parts = [np.concatenate(self._parts)] if len(self._parts) > 1 else self._parts
            if self._parts:
                _gather(self._parts[0], self._starts[documents], ends, out)
        else:  # read, not mapped: the kernel would map the pages around each one as well
            starts = self._starts[documents]
            for start, first, last in zip(8 * starts, ends[:-1], ends[1:], strict=True):
                os.preadv(self._file.fileno(), [out[first:last].data], start)
        return out, ends

    def _spool(self) -> None:
        if self._file is None:
            self._folder.mkdir(parents=True, exist_ok=True)  # on a node apart it may be missing
            self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 (lives as we do)
        with full_disk_named(self._folder, 8 * sum(map(len, self._parts))):
            for part in self._parts:
                self._file.write(part.data)
            # `preadv` sees what the system has, not what Python still holds.
            self._file.flush()
        self._parts = []


def buckets_of(keys: Hashes, documents: Offsets) -> Buckets:
    """Groups of two or more documents (ascending) whose keys are equal, and their offsets."""
    # Stable, so that documents ascend in each bucket: the first one there is the lowest.
    order = np.argsort(keys, kind="stable")
    starts = np.concatenate([[0], np.flatnonzero(np.diff(keys[order])) + 1, [len(keys)]])
    sizes = np.diff(starts)
    members = documents[order][np.repeat(sizes > 1, sizes)]
    return members, np.concatenate([[0], np.cumsum(sizes[sizes > 1])])


def compare(near_pairs: NearPairs, sets: ShingleSets, buckets: Buckets, threshold: float) -> None:
    """Link what is alike within the buckets, with at most `SETS_BYTES` of sets in memory."""
    for portion in _portions(buckets, sets.lengths):
        members, starts = _unsettled(portion, near_pairs.roots)
        if len(members):
            documents = np.unique(members)
            places = np.searchsorted(documents, members)
            near_pairs.check(documents, sets.take(documents), (places, starts), threshold)


def _unsettled(buckets: Buckets, roots: Offsets) -> Buckets:
    """The buckets whose documents are not in one component already."""
    members, starts = buckets
    if not len(members):
        return buckets
    theirs = roots[members]
    low, high = (f.reduceat(theirs, starts[:-1]) for f in (np.minimum, np.maximum))
    sizes = np.diff(starts)
    unsettled = low != high
    return members[np.repeat(unsettled, sizes)], np.concatenate([[0], np.cumsum(sizes[unsettled])])


def _portions(buckets: Buckets, lengths: Offsets) -> Iterator[Buckets]:
    """The buckets in groups whose sets fit into memory. A bucket too large for that comes as every
    two of its parts, each of which fits into half, so that all its documents meet.
    """
    members, starts = buckets
    if not len(members):
        return
    most = SETS_BYTES // 8
    weights = np.add.reduceat(lengths[members], starts[:-1])
    for first, last in _runs(packed(weights, most)):
        inside = members[starts[first] : starts[last]]
        if weights[first] <= most:
            yield inside, starts[first : last + 1] - starts[first]
        else:
            yield from _pairs_of_parts(inside, packed(lengths[inside], most // 2))


def _pairs_of_parts(members: Offsets, numbers: Offsets) -> Iterator[Buckets]:
    parts = [members[first:last] for first, last in _runs(numbers)]
    for i, part in enumerate(parts):
        # Where no part is left to go with, a part is compared within itself.
        for other in parts[i + 1 :] or [part[:0]]:
            both = np.concatenate([part, other])
            yield both, np.array([0, len(both)])


def _runs(numbers: Offsets) -> Sequence[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(numbers)) + 1
    ends = [0, *edges.tolist(), len(numbers)]
    return list(pairwise(ends))


@kernel
def packed(weights: Offsets, most: int) -> Offsets:
    """The number of each item's pack: consecutive items that weigh at most `most` together; a
    heavier one is a pack of its own.
    """
    out = np.zeros(len(weights), np.int64)
    partition, filled = 0, 0
    for item in range(len(weights)):
        # Empty sets weigh something too, or any number of them would go into one part.
        weight = max(1, weights[item])
        if filled and filled + weight > most:
            partition, filled = partition + 1, 0
        out[item] = partition
        filled += weight
    return out


@kernel
def _gather(values: Hashes, starts: Offsets, ends: Offsets, out: Hashes) -> None:
    for item in range(len(starts)):
        for j in range(ends[item + 1] - ends[item]):
            out[ends[item] + j] = values[starts[item] + j]
