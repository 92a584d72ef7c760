"""Byte pair encoding, natively: words counted in one pass over the text, then merges learnt.

The merges are those of `tokenizers`, ties and oddities included, whose algorithm this is: the most
frequent pair first, of equals the one with the smallest ids; counts change only where a merge is
applied. The heap may hold counts that are out of date; they are mended when they come up.
"""

import heapq
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tasks.data.kernels import kernel
from tasks.data.kernels.buffers import Bytes, Offsets
from tasks.data.kernels.characters import decode

Numbers = npt.NDArray[np.int64]
Slots = npt.NDArray[np.int32]
LETTER, NUMBER, SPACE, NEWLINE = 1, 2, 4, 8  # a newline is a space too; the rest is 0
APOSTROPHE, BLANK, LONG_S = 0x27, 0x20, 0x17F


MAX = (1 << 63) - 1
GOLDEN = np.int64(-7046029254386353131)  # 2^64 over the golden ratio: spreads what it multiplies
HASH, COUNT, BEGIN, END = range(4)  # of `Words.table`
KEY, TOTAL, HEAD = range(3)  # of a table of pairs
WORD, NEXT, PAIR = range(3)  # of nodes


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
    """
    for text in range(len(offsets) - 1):
        at, end = offsets[text], offsets[text + 1]
        while at < end:
            words = _roomy(words, end - at)
            at = _count_some(data, at, end, kinds, words.slots, words.table, words.pool, words.used)
    return words


@kernel
def _count_some(
    data: Bytes,
    at: int,
    end: int,
    kinds: Bytes,
    slots: Slots,
    table: Numbers,
    pool: Bytes,
    used: Numbers,
) -> int:
    """Count words up to the end of a text, or until the table is full: up to where."""
    while at < end and used[0] < len(table):
        after = word_end(data, at, end, kinds)
        table[_intern(slots, table, pool, used, data, at, after), COUNT] += 1
        at = after
    return at


@kernel
def word_end(data: Bytes, at: int, end: int, kinds: Bytes) -> int:
    """Where the word that begins at a place ends, by the pattern `tokenizer.WORDS`."""
    code, after = decode(data, at)
    kind = kinds[code]
    if kind & LETTER:
        return _run(data, after, end, kinds, LETTER)
    if kind & NUMBER:
        return _digits(data, after, end, kinds)
    if code == APOSTROPHE:
        contracted = _contraction(data, after, end)
        if contracted:
            return contracted
    second, second_kind = after, SPACE
    if after < end:
        code_after, second = decode(data, after)
        second_kind = kinds[code_after]
        if second_kind & LETTER and not kind & NEWLINE:
            return _run(data, second, end, kinds, LETTER)
    if not kind & SPACE:
        return _newlines(data, _run(data, after, end, kinds, 0), end)
    if code == BLANK and second_kind == 0:
        return _newlines(data, _run(data, second, end, kinds, 0), end)
    return _spaces(data, at, end, kinds)


@kernel
def _run(data: Bytes, at: int, end: int, kinds: Bytes, kind: int) -> int:
    while at < end:
        code, after = decode(data, at)
        if kinds[code] != kind:
            break
        at = after
    return at


@kernel
def _digits(data: Bytes, at: int, end: int, kinds: Bytes) -> int:
    for _ in range(2):
        if at < end:
            code, after = decode(data, at)
            if kinds[code] & NUMBER:
                at = after
            else:
                break
    return at


@kernel
def _contraction(data: Bytes, at: int, end: int) -> int:
    """Where an 's, 't, 're, 've, 'm, 'll or 'd whose letters begin here ends; 0 without one."""
    if at == end:
        return 0
    code, after = decode(data, at)
    first = code | 32 if code < 128 else code
    if code == LONG_S or first == 115 or first == 116 or first == 109 or first == 100:
        return after
    second = data[after] | 32 if after < end else 0
    if (second == 101 and (first == 114 or first == 118)) or (first == 108 and second == 108):
        return after + 1
    return 0


@kernel
def _newlines(data: Bytes, at: int, end: int) -> int:
    while at < end and (data[at] == 10 or data[at] == 13):
        at += 1
    return at


@kernel
def _spaces(data: Bytes, at: int, end: int, kinds: Bytes) -> int:
    """White space up to its last newline, or else all but the last, which the next word takes."""
    place, last, newline = at, at, at
    while place < end:
        code, after = decode(data, place)
        if not kinds[code] & SPACE:
            break
        last, place = place, after
        if kinds[code] & NEWLINE:
            newline = place
    if newline > at:
        return newline
    return place if place == end or last == at else last


@kernel
def _intern(
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
    if end - begin < 8:  # the number is the string
        for at in range(begin, end):
            hashed = hashed << 8 | np.int64(data[at])
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
def _roomy(words: Words, size: int) -> Words:
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


@kernel
def learn_merges(words: Words, ids: Numbers, first: int, wanted: int) -> Numbers:
    """Merges [n, 3] in order: the ids of both sides and of what they make, which is new, or that of
    an equal string. `ids` are those of the bytes; new ones go from `first` up to below `wanted`.
    """
    table = words.table[: words.used[0]]
    symbols = ids[words.pool[: table[-1, END]]] if len(table) else ids[:0]
    pairs, nodes, used = np.full((1 << 12, 4), -1, np.int64), _no_nodes(), np.array([0, 1])
    for word in range(len(table)):
        begin, end = table[word, BEGIN], table[word, END]
        pairs, nodes = _wider(pairs, nodes, used, end - begin)
        for at in range(begin, end - 1):
            key = symbols[at] << 32 | symbols[at + 1]
            _change(pairs, nodes, used, key, table[word, COUNT], word)
    heap, merges, tokens = [(0, 0, 0)][:0], [(0, 0, 0)][:0], _byte_tokens()
    _queue(pairs, nodes, used, 1, heap)
    while first + tokens.used[0] - 256 < wanted and len(heap):
        negative, key, head = heapq.heappop(heap)
        total = pairs[_place(pairs, key), TOTAL]
        if -negative != total:
            heapq.heappush(heap, (-total, key, head))
            continue
        if total < 1:
            break
        left, right = key >> 32, key & 0xFFFFFFFF
        tokens, made = _joined(tokens, _token(left, ids, first), _token(right, ids, first))
        made = ids[made] if made < 256 else first + made - 256
        merges.append((left, right, made))
        begin = used[1]
        while head:
            word, head = nodes[head, WORD], nodes[head, NEXT]
            pairs, nodes = _wider(pairs, nodes, used, table[word, END] - table[word, BEGIN])
            _merge(table, word, symbols, left, right, made, pairs, nodes, used)
        _queue(pairs, nodes, used, begin, heap)
    return np.array(merges) if len(merges) else np.zeros((0, 3), np.int64)


@kernel
def _merge(
    table: Numbers,
    word: int,
    symbols: Numbers,
    left: int,
    right: int,
    made: int,
    pairs: Numbers,
    nodes: Numbers,
    used: Numbers,
) -> None:
    """Apply a merge to one word, and the changes to the counts of pairs."""
    begin, end, count = table[word, BEGIN], table[word, END], table[word, COUNT]
    read = write = begin
    while read < end:
        if read + 1 < end and symbols[read] == left and symbols[read + 1] == right:
            if write > begin:
                before = symbols[write - 1] << 32
                _change(pairs, nodes, used, before | left, -count, word)
                _change(pairs, nodes, used, before | made, count, word)
            if read + 2 < end:
                after = symbols[read + 2]
                _change(pairs, nodes, used, right << 32 | after, -count, word)
                _change(pairs, nodes, used, made << 32 | after, count, word)
            symbols[write] = made
            read += 1
        else:
            symbols[write] = symbols[read]
        read, write = read + 1, write + 1
    table[word, END] = write


@kernel
def _change(
    pairs: Numbers, nodes: Numbers, used: Numbers, key: int, amount: int, word: int
) -> None:
    """Change the total of a pair; where it grows, a node remembers the word."""
    place = _place(pairs, key)
    if pairs[place, KEY] < 0:
        pairs[place, KEY], pairs[place, TOTAL], pairs[place, HEAD] = key, 0, 0
        used[0] += 1
    pairs[place, TOTAL] += amount
    head = pairs[place, HEAD]
    if amount > 0 and nodes[head, WORD] != word:
        node = used[1]
        nodes[node, WORD], nodes[node, NEXT], nodes[node, PAIR] = word, head, key
        pairs[place, HEAD] = node
        used[1] = node + 1


@kernel
def _queue(
    pairs: Numbers, nodes: Numbers, used: Numbers, begin: int, heap: list[tuple[int, int, int]]
) -> None:
    """Put the pairs of the nodes from `begin` on the heap, each with the list of its words."""
    for node in range(begin, used[1]):
        if nodes[node, NEXT] == 0:  # the first of its list
            key = nodes[node, PAIR]
            place = _place(pairs, key)
            if pairs[place, TOTAL] > 0:
                heapq.heappush(heap, (-pairs[place, TOTAL], key, pairs[place, HEAD]))
            pairs[place, HEAD] = 0


@kernel
def _place(pairs: Numbers, key: int) -> np.int64:
    """Where a pair is in the table, or would be."""
    mask = len(pairs) - 1
    place = ((key * GOLDEN) >> 32) & mask
    while pairs[place, KEY] != key and pairs[place, KEY] >= 0:
        place = (place + 1) & mask
    return place


@kernel
def _no_nodes() -> Numbers:
    """Nodes, of which the first stands for the end of a list."""
    nodes = np.zeros((1 << 12, 4), np.int64)
    nodes[0, WORD] = -1
    return nodes


@kernel
def _wider(pairs: Numbers, nodes: Numbers, used: Numbers, size: int) -> tuple[Numbers, Numbers]:
    """Both tables, or larger ones, with room for what a word of `size` symbols may add."""
    if 2 * (used[0] + 2 * size) > len(pairs):
        wider = np.full((2 * len(pairs), 4), -1, np.int64)
        while 2 * (used[0] + 2 * size) > len(wider):
            wider = np.full((2 * len(wider), 4), -1, np.int64)
        for old in range(len(pairs)):
            if pairs[old, KEY] >= 0:
                wider[_place(wider, pairs[old, KEY])] = pairs[old]
        pairs = wider
    if used[1] + 2 * size > len(nodes):
        longer = np.zeros((2 * (used[1] + 2 * size), 4), np.int64)
        longer[: used[1]] = nodes[: used[1]]
        nodes = longer
    return pairs, nodes


@kernel
def _byte_tokens() -> Words:
    """The tokens that are one byte, as strings 0 to 255."""
    tokens, byte = no_words(512), np.arange(256).astype(np.uint8)
    for number in range(256):
        _intern(tokens.slots, tokens.table, tokens.pool, tokens.used, byte, number, number + 1)
    return tokens


@kernel
def _token(index: int, ids: Numbers, first: int) -> int:
    """The number of a token's string, by its id."""
    if index >= first:
        return 256 + index - first
    for byte in range(256):
        if ids[byte] == index:
            break
    return byte


@kernel
def _joined(tokens: Words, left: int, right: int) -> tuple[Words, int]:
    """The number of the string that two others make; the table, or a larger one."""
    one = tokens.pool[tokens.table[left, BEGIN] : tokens.table[left, END]]
    other = tokens.pool[tokens.table[right, BEGIN] : tokens.table[right, END]]
    both = np.concatenate((one, other))
    tokens = _roomy(tokens, len(both))
    slots, table, pool, used = tokens
    return tokens, _intern(slots, table, pool, used, both, 0, len(both))
