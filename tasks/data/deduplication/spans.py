"""Spans of text that are there again: found in every block, settled by range of hash, cut out.

1. (name)           per block: 128-bit hashes of the spans of the documents that stay, by range
2. (name)-repeated  per range: those that are in more than one place, and the first of these
3. (sorting)        per block: its spans that are repeated and have an earlier place are cut out

What a span is, and which of its places count as one, says a finder. A worker holds one range, about
64 MiB of text's worth, at a time, and the spans of one block. Hashes are trusted here: at 10^10
spans two different ones have the same with probability 10^-19.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cluster.store import Draft
from tasks.data.deduplication.partitions import Partition, in_chunks
from tasks.data.deduplication.phases import load, phase
from tasks.data.deduplication.search import Found, workers
from tasks.data.deduplication.signatures import Block
from tasks.data.kernels import kernel
from tasks.data.kernels.buffers import Bytes, Offsets, text_array, text_buffer
from tasks.data.kernels.words import Hashes

RANGE_BYTES = 64 << 20
Chosen = npt.NDArray[np.bool_]


class Spans(NamedTuple):
    """Spans of some texts in order: two hashes, the text's index, begin and end in the buffer.

    `places` order the spans of all texts; those with the same place are no repeats of each other.
    """

    low: Hashes
    high: Hashes
    texts: Offsets
    begins: Offsets
    ends: Offsets
    places: Offsets

    def where(self, chosen: Chosen) -> "Spans":
        """Some of them."""
        return Spans._make(column[chosen] for column in self)


# The spans of texts of which the first has this number among all texts; picklable.
Finder = Callable[[pa.Array, int], Spans]


@dataclass(frozen=True)
class Repeats:
    """The spans of a block that are there again, in it or elsewhere.

    `mine` is the file of step 1 of this block, `ranges` are those of step 2.
    """

    find: Finder
    mine: Path
    ranges: tuple[Path, ...]

    def all(self, texts: pa.Array, first: int) -> Spans:
        """The spans of some texts of the block that are in more than one place."""
        spans = self.find(texts, first)
        return spans.where(self._firsts(spans) >= 0)

    def later(self, texts: pa.Array, first: int) -> Spans:
        """Those of them that have an earlier place, which keeps them."""
        spans = self.find(texts, first)
        firsts = self._firsts(spans)
        return spans.where((firsts >= 0) & (firsts != spans.places))

    def _firsts(self, spans: Spans) -> Offsets:
        """The first place of each span, -1 of those that are not repeated."""
        low, high, places = self._known
        if not len(low):
            return np.full(len(spans.low), -1)
        at = np.minimum(np.searchsorted(low, spans.low), len(low) - 1)
        same = (low[at] == spans.low) & (high[at] == spans.high)
        return np.where(same, places[at], -1)

    @cached_property
    def _known(self) -> tuple[Hashes, Hashes, Offsets]:
        """What is repeated of the block, sorted by `low`, and its first places."""
        mine = load(self.mine)
        low, high = mine["low"].to_numpy(), mine["high"].to_numpy()
        parts = [(low[:0], high[:0], np.zeros(0, np.int64))]
        for path in self.ranges:
            table = load(path)
            theirs = table["low"].to_numpy()
            if not len(theirs):
                continue
            first, last = np.searchsorted(low, [theirs[0], theirs[-1] + np.uint64(1)])
            at = np.minimum(np.searchsorted(theirs, low[first:last]), len(theirs) - 1)
            same = theirs[at] == low[first:last]
            same &= table["high"].to_numpy()[at] == high[first:last]
            rows = first + np.flatnonzero(same)
            parts.append((low[rows], high[rows], table["place"].to_numpy()[at[same]]))
        low, high, places = (np.concatenate(column) for column in zip(*parts, strict=True))
        return low, high, places


def find_repeats(
    draft: Draft, name: str, blocks: Sequence[Block], found: Found, finders: Sequence[Finder]
) -> list[Repeats]:
    """Steps 1 and 2, with a finder for each block, over the documents that stay."""
    at_once = workers(draft, blocks)
    ranges = 1 + sum(block.size for block in blocks) // RANGE_BYTES
    work = [(b, found.within(b)[0], find) for b, find in zip(blocks, finders, strict=True)]
    mine = phase(draft, name, partial(_hash_block, ranges), work, at_once)
    partitions = [Partition(number, tuple(mine)) for number in range(ranges)]
    repeated = tuple(phase(draft, f"{name}-repeated", _repeated, partitions, at_once))
    return [Repeats(find, path, repeated) for find, path in zip(finders, mine, strict=True)]


def cut(texts: pa.Array, spans: Spans) -> pa.Array:
    """The texts without these spans, which are in order and may overlap."""
    data, offsets = text_buffer(texts)
    out = np.empty(int(offsets[-1] - offsets[0]), np.uint8)
    ends = np.zeros(len(offsets), np.int64)
    _cut(data, offsets, spans.texts, spans.begins, spans.ends, out, ends)
    return text_array(out, ends)


def together(parts: Sequence[Spans]) -> Spans:
    """Spans of several kinds of the same texts, in order."""
    spans = Spans._make(np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((spans.begins, spans.texts))
    return Spans._make(column[order] for column in spans)


SPANS = pa.schema(
    [("low", pa.uint64()), ("high", pa.uint64()), ("place", pa.int64()), ("again", pa.bool_())]
)


def _hash_block(ranges: int, work: tuple[Block, Offsets, Finder]) -> pa.Table:
    """The different spans of a block with the first place of each; a chunk per range."""
    block, removed, find = deepcopy(work)  # its caches are freed with the copy; the list lives on
    parts = [(np.zeros(0, np.uint64), np.zeros(0, np.uint64), np.zeros(0, np.int64))]
    for first, batch in block.batches(["text"]):
        spans = find(batch["text"], first)
        stays = ~np.isin(first + spans.texts - block.start, removed)
        parts.append((spans.low[stays], spans.high[stays], spans.places[stays]))
    low, high, places = (np.concatenate(column) for column in zip(*parts, strict=True))
    table = _distinct(low, high, places, np.zeros(len(low), np.bool_))
    # The upper half of a hash, scaled to the number of ranges.
    partitions = (table["low"].to_numpy() >> np.uint64(32)) * np.uint64(ranges) >> np.uint64(32)
    return in_chunks(table, partitions)


def _repeated(partition: Partition) -> pa.Table:
    """The spans of a range that are in more than one place."""
    # With an empty one: a range may hold no span.
    table = pa.concat_tables([SPANS.empty_table(), *partition.pieces(SPANS.names)])
    whole = _distinct(*(table[name].to_numpy() for name in SPANS.names))
    return whole.filter(whole["again"]).combine_chunks()


def _distinct(low: Hashes, high: Hashes, places: Offsets, again: Chosen) -> pa.Table:
    """Each span once, sorted, with its lowest place, and whether there are several."""
    # Its last key counts first: by `low`, and of equal spans the lowest place leads.
    order = np.lexsort((places, high, low))
    low, high, places, again = low[order], high[order], places[order], again[order]
    if not len(low):
        return SPANS.empty_table()
    new = np.ones(len(low), np.bool_)
    new[1:] = (low[1:] != low[:-1]) | (high[1:] != high[:-1])
    starts = np.flatnonzero(new)
    # Places are one where the highest is the lowest.
    last = np.maximum.reduceat(places, starts)
    several = np.logical_or.reduceat(again, starts) | (last != places[starts])
    return pa.table([low[starts], high[starts], places[starts], several], schema=SPANS)


@kernel
def _cut(
    data: Bytes,
    offsets: Offsets,
    texts: Offsets,
    begins: Offsets,
    stops: Offsets,
    out: Bytes,
    ends: Offsets,
) -> None:
    length, span = 0, 0
    for text in range(len(offsets) - 1):
        at, gone = offsets[text], offsets[text]
        while at < offsets[text + 1]:
            while span < len(texts) and texts[span] == text and begins[span] <= at:
                gone = max(gone, stops[span])
                span += 1
            if at < gone:
                at = gone
                continue
            out[length] = data[at]
            length += 1
            at += 1
        # Spans that begin inside the last cut of a text were not
        # reached; the next text's come behind.
        while span < len(texts) and texts[span] == text:
            span += 1
        ends[text + 1] = length
