"""Lines that an earlier document has: only the first document in the order of the text keeps them.

1. lines      per block: 128-bit hashes of the lines of the documents that stay, by range of hash
2. repeated   per range: those that more than one document has, and the first that has it
3. (sorting)  per block: its lines that are repeated and belong to another document are cut out

Lines are equal up to white space. A worker holds one range, about 64 MiB of text's worth, at a
time, and the lines of one block. Hashes are trusted here: at 10^10 lines two different ones
have the same with probability 10^-19.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cluster.store import Draft
from tasks.data.deduplication.parcels import Parcel, in_chunks
from tasks.data.deduplication.phases import load, phase
from tasks.data.deduplication.search import Found, workers
from tasks.data.deduplication.sketches import Block
from tasks.data.kernels import kernel
from tasks.data.kernels.buffers import Bytes, Offsets, text_array, text_buffer
from tasks.data.kernels.characters import SPACE, WIDE, WORD, decode, kinds
from tasks.data.kernels.words import FACTOR, SEED, Hashes, Kinds, mix

RANGE_BYTES = 64 << 20
OTHER_FACTOR = np.uint64(0xC2B2AE3D27D4EB4F)


class Lines(NamedTuple):
    """Lines of some texts: two hashes, the text's index, where it begins and ends in the buffer."""

    low: Hashes
    high: Hashes
    texts: Offsets
    begins: Offsets
    ends: Offsets


@dataclass(frozen=True)
class Repeated:
    """The repeated lines of a block, sorted by `low`, and the number of the first document."""

    low: Hashes
    high: Hashes
    owners: Offsets

    def drop(self, lines: Lines, numbers: Offsets) -> npt.NDArray[np.bool_]:
        """Which lines belong to another document; `numbers` are those of the texts."""
        if not len(self.low):
            return np.zeros(len(lines.low), np.bool_)
        at = np.minimum(np.searchsorted(self.low, lines.low), len(self.low) - 1)
        same = (self.low[at] == lines.low) & (self.high[at] == lines.high)
        return same & (self.owners[at] != numbers[lines.texts])


def find_repeated(
    draft: Draft, blocks: Sequence[Block], found: Found, least_words: int
) -> tuple[list[Path], list[Path]]:
    """The files of steps 1 and 2, for `repeated_in`."""
    at_once = workers(draft, blocks)
    ranges = 1 + sum(block.size for block in blocks) // RANGE_BYTES
    work = [(block, found.within(block)[0]) for block in blocks]
    lines = phase(draft, "lines", partial(_hash_block, least_words, ranges), work, at_once)
    parcels = [Parcel(number, tuple(lines)) for number in range(ranges)]
    return lines, phase(draft, "repeated", _repeated, parcels, at_once)


def repeated_in(lines: Path, repeated: Sequence[Path]) -> Repeated:
    """What is repeated of the lines of one block."""
    mine = load(lines)
    low, high = mine["low"].to_numpy(), mine["high"].to_numpy()
    parts = []
    for path in repeated:
        table = load(path)
        theirs = table["low"].to_numpy()
        if not len(theirs):
            continue
        first, last = np.searchsorted(low, [theirs[0], theirs[-1] + np.uint64(1)])
        at = np.minimum(np.searchsorted(theirs, low[first:last]), len(theirs) - 1)
        same = (theirs[at] == low[first:last]) & (table["high"].to_numpy()[at] == high[first:last])
        rows = first + np.flatnonzero(same)
        parts.append((low[rows], high[rows], table["number"].to_numpy()[at[same]]))
    if not parts:
        return Repeated(np.zeros(0, np.uint64), np.zeros(0, np.uint64), np.zeros(0, np.int64))
    return Repeated(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def split_lines(texts: pa.Array, least_words: int) -> Lines:
    """The lines of so many words or more."""
    data, offsets = text_buffer(texts)
    room = int(np.count_nonzero(data[offsets[0] : offsets[-1]] == 0x0A)) + len(texts)
    low, high = np.empty(room, np.uint64), np.empty(room, np.uint64)
    owners, begins, ends = (np.empty(room, np.int64) for _ in range(3))
    count = _split(data, offsets, kinds(), least_words, low, high, owners, begins, ends)
    return Lines(low[:count], high[:count], owners[:count], begins[:count], ends[:count])


def cut(texts: pa.Array, lines: Lines, drop: npt.NDArray[np.bool_]) -> pa.Array:
    """The texts without these lines."""
    data, offsets = text_buffer(texts)
    out = np.empty(int(offsets[-1] - offsets[0]), np.uint8)
    ends = np.zeros(len(offsets), np.int64)
    _cut(data, offsets, lines.texts[drop], lines.begins[drop], lines.ends[drop], out, ends)
    return text_array(out, ends)


LINES = pa.schema(
    [("low", pa.uint64()), ("high", pa.uint64()), ("number", pa.int64()), ("again", pa.bool_())]
)


def _hash_block(least_words: int, ranges: int, work: tuple[Block, Offsets]) -> pa.Table:
    """The different lines of a block with the first document of each; a chunk per range."""
    block, removed = work
    parts = []
    for first, batch in block.batches(["text"]):
        lines = split_lines(batch["text"], least_words)
        numbers = first + lines.texts
        stays = ~np.isin(numbers - block.start, removed)
        parts.append((lines.low[stays], lines.high[stays], numbers[stays]))
    empty = (np.zeros(0, np.uint64), np.zeros(0, np.uint64), np.zeros(0, np.int64))
    low, high, numbers = (np.concatenate(c) for c in zip(empty, *parts, strict=True))
    table = _distinct(low, high, numbers, np.zeros(len(low), np.bool_))
    # The upper half of a hash, scaled to the number of ranges.
    parcels = (table["low"].to_numpy() >> np.uint64(32)) * np.uint64(ranges) >> np.uint64(32)
    return in_chunks(table, parcels)


def _repeated(parcel: Parcel) -> pa.Table:
    """The lines of a range that more than one document has."""
    table = pa.concat_tables([LINES.empty_table(), *parcel.pieces(LINES.names)])
    whole = _distinct(*(table[name].to_numpy() for name in LINES.names))
    return whole.filter(whole["again"]).combine_chunks()


def _distinct(
    low: Hashes, high: Hashes, numbers: Offsets, again: npt.NDArray[np.bool_]
) -> pa.Table:
    """Each line once, sorted, with its lowest number, and whether several documents have it."""
    order = np.lexsort((numbers, high, low))
    low, high, numbers, again = low[order], high[order], numbers[order], again[order]
    if not len(low):
        return LINES.empty_table()
    new = np.ones(len(low), np.bool_)
    new[1:] = (low[1:] != low[:-1]) | (high[1:] != high[:-1])
    starts = np.flatnonzero(new)
    last = np.maximum.reduceat(numbers, starts)
    several = np.logical_or.reduceat(again, starts) | (last != numbers[starts])
    return pa.table([low[starts], high[starts], numbers[starts], several], schema=LINES)


@kernel
def _split(
    data: Bytes,
    offsets: Offsets,
    kinds: Kinds,
    least_words: int,
    low: Hashes,
    high: Hashes,
    owners: Offsets,
    begins: Offsets,
    ends: Offsets,
) -> int:
    count = 0
    for text in range(len(offsets) - 1):
        at, end = offsets[text], offsets[text + 1]
        while at < end:
            begin, words, inside, gap = at, 0, False, False
            one, two = SEED, SEED
            while at < end:
                code = int(data[at])
                if code == 0x0A:
                    at += 1
                    break
                if code < 0x80:
                    at += 1
                else:
                    code, at = decode(data, at)
                kind = kinds[code]
                if kind & SPACE:
                    gap, inside = True, False
                    continue
                if gap and one != SEED:
                    one, two = one * FACTOR, two * OTHER_FACTOR
                gap = False
                one = (one ^ np.uint64(code)) * FACTOR
                two = (two ^ np.uint64(code)) * OTHER_FACTOR
                if kind & WIDE or (kind & WORD and not inside):
                    words += 1
                inside = kind & WORD != 0 and kind & WIDE == 0
            if words >= least_words:
                low[count], high[count], owners[count] = mix(one), mix(two), text
                begins[count], ends[count] = begin, at
                count += 1
    return count


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
    length, line = 0, 0
    for text in range(len(offsets) - 1):
        at = offsets[text]
        while at < offsets[text + 1]:
            if line < len(texts) and texts[line] == text and begins[line] == at:
                at = stops[line]
                line += 1
                continue
            out[length] = data[at]
            length += 1
            at += 1
        ends[text + 1] = length
