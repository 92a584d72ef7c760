"""Distinct strings of bytes with their numbers and counts: the words of a text, or its tokens."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tasks.data.kernels import kernel
from tasks.data.kernels.buffers import Bytes, Offsets
from tasks.tokens.bpe_words import word_end

Numbers = npt.NDArray[np.int64]
Slots = npt.NDArray[np.int32]
MAX = (1 << 63) - 1
GOLDEN = np.int64(-7046029254386353131)  # 2^64 over the golden ratio: spreads what it multiplies
HASH, COUNT, BEGIN, END = range(4)  # of `Words.table`
WORD = 2  # of `recent`, beside HASH and COUNT
RECENT, SHORT = 4096, 8


class Words(NamedTuple):
    """Distinct strings of bytes: `pool[table[i, BEGIN]:table[i, END]]`, with their counts.

    `slots` is a hash table of i + 1, 0 where free; `used[0]` rows of `table` are taken.
    """

    slots: Slots
    table: Numbers
    pool: Bytes
    used: Numbers


@kernel
def no_words(capacity: int) -> Words:
    """An empty table; the capacity is a power of two."""
    return Words(
        np.zeros(2 * capacity, np.int32),
        np.zeros((capacity, 4), np.int64),
        np.zeros(8 * capacity, np.uint8),
        np.zeros(1, np.int64),
    )


@kernel
def count_words(data: Bytes, offsets: Offsets, kinds: Bytes, words: Words) -> Words:
    """Add the words of all texts to a table, which is replaced when it is full. `kinds` are the
    bits of each code point.

    Short words that come often are counted in `recent`, which stays in the processor's cache.
    """
    recent = np.zeros((RECENT, 3), np.int64)
    for text in range(len(offsets) - 1):
        at, end = offsets[text], offsets[text + 1]
        while at < end:
            words = roomy(words, end - at)
            slots, table, pool, used = words
            at = _count_some(data, at, end, kinds, recent, slots, table, pool, used)
    for place in range(RECENT):
        words.table[recent[place, WORD], COUNT] += recent[place, COUNT]
    return words


@kernel
def _count_some(
    data: Bytes,
    at: int,
    end: int,
    kinds: Bytes,
    recent: Numbers,
    slots: Slots,
    table: Numbers,
    pool: Bytes,
    used: Numbers,
) -> int:
    """Count words up to the end of a text, or until the table is full: up to where."""
    while at < end and used[0] < len(table):
        after = word_end(data, at, end, kinds)
        if after - at >= SHORT:
            table[intern(slots, table, pool, used, data, at, after), COUNT] += 1
        else:
            hashed = _number(data, at, after)
            place = ((hashed * GOLDEN) >> 40) & (RECENT - 1)
            if recent[place, HASH] != hashed:
                table[recent[place, WORD], COUNT] += recent[place, COUNT]
                word = intern(slots, table, pool, used, data, at, after)
                recent[place, HASH], recent[place, WORD], recent[place, COUNT] = hashed, word, 0
            recent[place, COUNT] += 1
        at = after
    return at


@kernel
def _number(data: Bytes, begin: int, end: int) -> np.int64:
    """A short string as a number, which no other string is."""
    number = np.int64(1)
    for at in range(begin, end):
        number = number << 8 | np.int64(data[at])
    return number


@kernel
def intern(
    slots: Slots,
    table: Numbers,
    pool: Bytes,
    used: Numbers,
    data: Bytes,
    begin: int,
    end: int,
) -> int:
    """The number of a string in the arrays of `Words`, which have room for it."""
    hashed = np.int64(1)
    if end - begin < SHORT:
        hashed = _number(data, begin, end)
    else:
        for at in range(begin, end):
            hashed = (hashed ^ np.int64(data[at])) * np.int64(0x100000001B3)
        hashed = -(hashed & MAX)
    slot = _first_slot(hashed, slots)
    while slots[slot]:
        word = slots[slot] - 1
        if table[word, HASH] == hashed and (
            hashed > 0 or _same(table, word, pool, data, begin, end)
        ):
            return word
        slot = (slot + 1) & (len(slots) - 1)
    word = used[0]
    start = table[word - 1, END] if word else 0
    table[word, HASH], table[word, BEGIN], table[word, END] = hashed, start, start + end - begin
    pool[start : start + end - begin] = data[begin:end]
    used[0] = slots[slot] = word + 1
    return word


@kernel
def _first_slot(hashed: np.int64, slots: Slots) -> np.int64:
    return ((hashed * GOLDEN) >> 32) & (len(slots) - 1)


@kernel
def _same(table: Numbers, word: int, pool: Bytes, data: Bytes, begin: int, end: int) -> bool:
    start = table[word, BEGIN]
    if table[word, END] - start != end - begin:
        return False
    for at in range(end - begin):  # noqa: SIM110 (a generator is no kernel)
        if pool[start + at] != data[begin + at]:
            return False
    return True


@kernel
def roomy(words: Words, size: int) -> Words:
    """The table, or a larger one, with room for a string more and for `size` bytes."""
    slots, table, pool, used = words
    taken = used[0]
    if taken == len(table):
        slots, table = np.zeros(2 * len(slots), np.int32), np.zeros((2 * taken, 4), np.int64)
        table[:taken] = words.table
        for word in range(taken):
            slot = _first_slot(table[word, HASH], slots)
            while slots[slot]:
                slot = (slot + 1) & (len(slots) - 1)
            slots[slot] = word + 1
    needed = size + (table[taken - 1, END] if taken else 0)
    if needed > len(pool):
        pool = np.zeros(2 * needed, np.uint8)
        pool[: len(words.pool)] = words.pool
    return Words(slots, table, pool, used)
