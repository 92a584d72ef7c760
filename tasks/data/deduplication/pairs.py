"""Which candidates are near duplicates: the true Jaccard similarity of pairs, and the components
that pairs above the threshold connect.

Every pair of a bucket is compared or known to be settled: both are in one component already, their
sizes differ too much, or (Jaccard distance is a metric) their distances to a third document do, or
too many bits of one's bitmap are missing in the other's (Sandes et al. 2020, arXiv 1711.07295).
A large bucket is first compared with its first document, which settles most of a giant cluster in
linear time. Only in a bucket that would still take longer than `MOST_COMPARISONS` are the remaining
pairs left out, and counted.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tasks.data.kernels import kernel
from tasks.data.kernels.buffers import Offsets
from tasks.data.kernels.words import Hashes

Floats = npt.NDArray[np.float64]
Pairs = npt.NDArray[np.int64]
MOST_COMPARISONS = 1 << 26
STEPS_PER_COMPARISON = 128  # a pair that is settled without comparing costs so much less
STEPS_PER_BITMAP = 4
BITMAP_WORDS = 32
SMALL_BUCKET = 64
CHECKED, SKIPPED = 0, 1


@dataclass
class NearPairs:
    """The near duplicates found so far among `size` documents, and what they connect.

    `parents` [size] is a union-find forest; the root of a component is its lowest document.
    `pairs` and `similarities` are arrays of the pairs that made two components one; `tally` counts
    the pairs that were compared (CHECKED) and left out (SKIPPED).
    """

    size: int
    parents: Offsets = field(init=False)
    tally: Offsets = field(init=False)
    pairs: list[Pairs] = field(default_factory=list)
    similarities: list[Floats] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.parents = np.arange(self.size)
        self.tally = np.zeros(2, np.int64)

    @property
    def roots(self) -> Offsets:
        """For each document the lowest of its component."""
        _flatten(self.parents)
        return self.parents

    def check(
        self,
        documents: Offsets,
        sets: tuple[Hashes, Offsets],
        buckets: tuple[Offsets, Offsets],
        threshold: float,
    ) -> None:
        """Compare documents that share a bucket; link those as similar as the threshold.

        `sets`: sorted hashes and offsets of `documents` (ascending). `buckets`: places in
        `documents`, ascending in each bucket, and the offsets of the buckets.
        """
        members, starts = buckets
        for bucket in np.flatnonzero(np.diff(starts) > SMALL_BUCKET):
            self._check_large(
                documents, sets, members[starts[bucket] : starts[bucket + 1]], threshold
            )
        some = _room(documents)
        count = _check_small(
            documents, *sets, members, starts, self.parents, threshold, *some, self.tally
        )
        self._keep(some, count)

    def _check_large(
        self,
        documents: Offsets,
        sets: tuple[Hashes, Offsets],
        members: Offsets,
        threshold: float,
    ) -> None:
        """The first with all others; then every two that this leaves in different components."""
        if len(np.unique(self.roots[documents[members]])) == 1:
            return
        distances = np.empty(len(members), np.float64)
        first = _room(documents)
        count = _check_first(
            documents, *sets, members, self.parents, threshold, distances, *first, self.tally
        )
        self._keep(first, count)
        roots = self.roots[documents[members]]
        order = np.argsort(roots, kind="stable")
        if roots[order[0]] != roots[order[-1]]:
            ends = np.searchsorted(roots[order], roots[order], side="right")
            rest = _room(documents)
            count = _check_across(
                documents,
                *sets,
                members[order],
                ends,
                distances[order],
                _bitmaps(*sets, members[order]),
                self.parents,
                threshold,
                MOST_COMPARISONS * STEPS_PER_COMPARISON,
                *rest,
                self.tally,
            )
            self._keep(rest, count)

    def _keep(self, output: "_Output", count: int) -> None:
        self.pairs.append(output.pairs[:count])
        self.similarities.append(output.similarities[:count])


class _Output(NamedTuple):
    """Room for the pairs that a kernel links, [pairs, 2], and their similarities, [pairs]."""

    pairs: npt.NDArray[np.int64]
    similarities: Floats


def _bitmaps(values: Hashes, offsets: Offsets, members: Offsets) -> Hashes:
    """`[members, BITMAP_WORDS]`: a bit for each element of a set; elements may share a bit."""
    out = np.zeros((len(members), BITMAP_WORDS), np.uint64)
    _fill_bitmaps(values, offsets, members, out)
    return out


def _room(documents: Offsets) -> _Output:
    # Each pair that is kept makes two components one: there are fewer than documents.
    return _Output(np.empty((len(documents), 2), np.int64), np.empty(len(documents), np.float64))


@kernel
def find(parents: Offsets, number: int) -> int:
    """The root of a document; the way there becomes shorter."""
    while parents[number] != number:
        parents[number] = parents[parents[number]]
        number = parents[number]
    return number


@kernel
def union(parents: Offsets, a: int, b: int) -> None:
    """Make two components one; the lower root stays."""
    a, b = find(parents, a), find(parents, b)
    if a < b:
        parents[b] = a
    else:
        parents[a] = b


@kernel
def similarity(values: Hashes, a: int, a_end: int, b: int, b_end: int, least: float) -> float:
    """The Jaccard similarity of two sorted sets, or -1 as soon as it must be below `least`."""
    total = a_end - a + b_end - b
    # shared / (total - shared) >= least, solved for shared; less by a hair, so that
    # rounding refuses no pair that lies on the threshold.
    needed = least / (1.0 + least) * total - 1e-6  # elements in common
    # How many of each may still be passed over before too few are left.
    spare_a, spare_b = (a_end - a) - needed, (b_end - b) - needed
    if spare_a < 0 or spare_b < 0 or total == 0:
        return -1.0
    shared = 0
    while a < a_end and b < b_end:
        if values[a] == values[b]:
            shared += 1
            a += 1
            b += 1
        elif values[a] < values[b]:
            a += 1
            spare_a -= 1
            if spare_a < 0:
                return -1.0
        else:
            b += 1
            spare_b -= 1
            if spare_b < 0:
                return -1.0
    return shared / (total - shared)


@kernel
def _flatten(parents: Offsets) -> None:
    for number in range(len(parents)):  # roots are lower, so theirs is final
        parents[number] = parents[parents[number]]


@kernel
def _check_small(
    documents: Offsets,
    values: Hashes,
    offsets: Offsets,
    members: Offsets,
    starts: Offsets,
    parents: Offsets,
    threshold: float,
    pairs: Pairs,
    similarities: Floats,
    tally: Offsets,
) -> int:
    count = 0
    for bucket in range(len(starts) - 1):
        start, end = starts[bucket], starts[bucket + 1]
        if end - start > SMALL_BUCKET:
            continue
        for i in range(start, end):
            for j in range(i + 1, end):
                count += _link(
                    documents, values, offsets, members[i], members[j], parents, threshold,
                    pairs, similarities, count, tally,
                )  # fmt: skip
    return count


@kernel
def _check_first(
    documents: Offsets,
    values: Hashes,
    offsets: Offsets,
    members: Offsets,
    parents: Offsets,
    threshold: float,
    distances: Floats,
    pairs: Pairs,
    similarities: Floats,
    tally: Offsets,
) -> int:
    count = 0
    a = members[0]
    distances[0] = 0.0
    for j in range(1, len(members)):
        b = members[j]
        # In full, not cut short: the distance is needed to settle other pairs.
        alike = similarity(values, offsets[a], offsets[a + 1], offsets[b], offsets[b + 1], 0.0)
        distances[j] = 1.0 - alike
        tally[CHECKED] += 1
        if alike >= threshold:
            count += _unite(documents[a], documents[b], alike, parents, pairs, similarities, count)
    return count


@kernel
def _fill_bitmaps(values: Hashes, offsets: Offsets, members: Offsets, out: Hashes) -> None:
    for j in range(len(members)):
        for k in range(offsets[members[j]], offsets[members[j] + 1]):
            word = int(values[k] >> np.uint64(6)) % BITMAP_WORDS
            out[j, word] |= np.uint64(1) << (values[k] & np.uint64(63))


@kernel
def _missing(one: Hashes, other: Hashes) -> int:
    """How many bits of one bitmap the other lacks: at least so many elements does it not have."""
    total = np.uint64(0)
    for k in range(BITMAP_WORDS):
        bits = one[k] & ~other[k]
        # A population count: sums of two bits, of four, of eight, then of the bytes.
        bits -= (bits >> np.uint64(1)) & np.uint64(0x5555555555555555)
        pairs = np.uint64(0x3333333333333333)
        bits = (bits & pairs) + ((bits >> np.uint64(2)) & pairs)
        bits = (bits + (bits >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
        total += (bits * np.uint64(0x0101010101010101)) >> np.uint64(56)
    return int(total)


@kernel
def _check_across(
    documents: Offsets,
    values: Hashes,
    offsets: Offsets,
    members: Offsets,
    ends: Offsets,
    distances: Floats,
    bitmaps: Hashes,
    parents: Offsets,
    threshold: float,
    most_work: int,
    pairs: Pairs,
    similarities: Floats,
    tally: Offsets,
) -> int:
    count = 0
    work = 0
    for i in range(len(members)):
        # Looked at once a row: a row that has begun is finished.
        if work > most_work:
            tally[SKIPPED] += len(members) - ends[i]
            continue
        for j in range(ends[i], len(members)):
            work += 1
            # Triangle inequality: the two are at least as far apart as
            # their distances to the first differ.
            if abs(distances[i] - distances[j]) > 1.0 - threshold + 1e-9:
                continue
            if find(parents, documents[members[i]]) == find(parents, documents[members[j]]):
                continue
            work += STEPS_PER_BITMAP
            sizes = (
                offsets[members[i] + 1] - offsets[members[i]],
                offsets[members[j] + 1] - offsets[members[j]],
            )
            needed = threshold / (1.0 + threshold) * (sizes[0] + sizes[1]) - 1e-6
            if _missing(bitmaps[i], bitmaps[j]) > sizes[0] - needed:
                continue
            before = tally[CHECKED]
            count += _link(
                documents, values, offsets, members[i], members[j], parents, threshold,
                pairs, similarities, count, tally,
            )  # fmt: skip
            work += STEPS_PER_COMPARISON * (tally[CHECKED] - before)
    return count


@kernel
def _link(
    documents: Offsets,
    values: Hashes,
    offsets: Offsets,
    a: int,
    b: int,
    parents: Offsets,
    threshold: float,
    pairs: Pairs,
    similarities: Floats,
    count: int,
    tally: Offsets,
) -> int:
    if find(parents, documents[a]) == find(parents, documents[b]):
        return 0
    tally[CHECKED] += 1
    alike = similarity(values, offsets[a], offsets[a + 1], offsets[b], offsets[b + 1], threshold)
    if alike < threshold:
        return 0
    return _unite(documents[a], documents[b], alike, parents, pairs, similarities, count)


@kernel
def _unite(
    a: int,
    b: int,
    alike: float,
    parents: Offsets,
    pairs: Pairs,
    similarities: Floats,
    count: int,
) -> int:
    if find(parents, a) == find(parents, b):
        return 0
    union(parents, a, b)
    pairs[count, 0], pairs[count, 1] = min(a, b), max(a, b)
    similarities[count] = alike
    return 1
