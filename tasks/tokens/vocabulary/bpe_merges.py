"""Merges learnt from counted words, natively.

The merges are those of `tokenizers`, oddities included, whose algorithm this is: the most frequent
pair first, of equals the one with the smallest ids, or by `lexical` ties the greatest strings;
counts change only where a merge is applied. The heap may hold counts that are out of date; they are
mended when they come up.

    pairs   an open-addressing table, a row a pair: KEY (left id << 32 | right id), its TOTAL in the
            text, HEAD (the first node of the list of words in which it became more frequent)
    nodes   those lists: WORD, and the NEXT node; node 0 ends every list
    keys    by node, the pair whose list it is in
    used    how many pairs, and how many nodes, there are
    heap    (-total, key, head) of the pairs that may be merged
"""

import heapq

import numpy as np
import numpy.typing as npt

from tasks.data.kernels import kernel
from tasks.data.kernels.buffers import Bytes, Offsets
from tasks.tokens.vocabulary.bpe_heap import Entry, pop, push

Numbers = npt.NDArray[np.int64]
Slots = npt.NDArray[np.int32]
GOLDEN = np.int64(-7046029254386353131)  # 2^64 over the golden ratio: spreads what it multiplies
KEY, TOTAL, HEAD = range(3)  # of a table of pairs
WORD, NEXT = range(2)  # of nodes, which are small: most of the time goes into fetching them
HASH, POWER = range(2)  # of tokens
BASE = np.int64(0x100000001B3)


@kernel
def learn_merges(
    data: Bytes,
    offsets: Offsets,
    counts: Numbers,
    ids: Numbers,
    first: int,
    wanted: int,
    lexical: bool,
) -> Numbers:
    """Merges [n, 3] in order: the ids of both sides and of what they make, which is new, or that of
    an equal string. `ids` are those of the bytes; new ones go from `first` up to below `wanted`.
    """
    symbols, ends = ids.astype(np.int32)[data], offsets[1:].copy()
    pairs, used = np.full((1 << 12, 4), -1, np.int64), np.array([0, 1])
    nodes, keys = _no_nodes(), np.zeros(1 << 12, np.int64)
    for word in range(len(ends)):
        pairs, nodes, keys = _wider(pairs, nodes, keys, used, ends[word] - offsets[word])
        for at in range(offsets[word], ends[word] - 1):
            # Left id above right id: the order of the keys is that of ties by ids.
            key = symbols[at] << 32 | symbols[at + 1]
            _change(pairs, nodes, keys, used, key, counts[word], word)
    # Empty, but with an element's type, which Numba cannot tell from `[]`.
    heap, merges = [(0, 0, 0)][:0], [(0, 0, 0)][:0]
    hashes, size = _byte_hashes(ids, max(first, wanted)), first
    # At least twice as many as tokens: a search always ends at an empty one.
    slots = np.zeros(1 << int(np.log2(len(hashes))) + 2, np.int32)
    strings = _byte_strings(ids, len(hashes))
    _queue(pairs, nodes, keys, used, 1, heap, strings, lexical)
    while size < wanted and len(heap):
        negative, key, head = pop(heap, strings) if lexical else heapq.heappop(heap)
        total = pairs[_place(pairs, key), TOTAL]
        if -negative != total:  # out of date: back it goes, with what is true now
            if lexical:
                push(heap, (-total, key, head), strings)
            else:
                heapq.heappush(heap, (-total, key, head))
            continue
        if total < 1:
            break
        left, right = key >> 32, key & 0xFFFFFFFF
        made = _joined(hashes, slots, left, right, size)
        if made == size:
            strings, size = _spelt(strings, left, right, made), size + 1
        merges.append((left, right, made))
        begin = used[1]
        while head:
            word, head = nodes[head, WORD], nodes[head, NEXT]
            start, end = offsets[word], ends[word]
            # Room beforehand, so that no change within the word has to look for it.
            pairs, nodes, keys = _wider(pairs, nodes, keys, used, end - start)
            ends[word] = _merge(
                word, start, end, counts[word], symbols, left, right, made, pairs, nodes, keys, used
            )
        _queue(pairs, nodes, keys, used, begin, heap, strings, lexical)
    return np.array(merges) if len(merges) else np.zeros((0, 3), np.int64)


@kernel
def _merge(
    word: int,
    begin: int,
    end: int,
    count: int,
    symbols: Slots,
    left: int,
    right: int,
    made: int,
    pairs: Numbers,
    nodes: Slots,
    keys: Numbers,
    used: Numbers,
) -> int:
    """Apply a merge to one word, and the changes to the counts of pairs: where it ends now."""
    read = write = begin
    while read < end:
        if read + 1 < end and symbols[read] == left and symbols[read + 1] == right:
            if write > begin:
                # What stands before may have been made by this very merge.
                before = symbols[write - 1] << 32
                _change(pairs, nodes, keys, used, before | left, -count, word)
                _change(pairs, nodes, keys, used, before | made, count, word)
            if read + 2 < end:
                # What stands behind may be merged next; then that takes back what is counted here.
                after = symbols[read + 2]
                _change(pairs, nodes, keys, used, right << 32 | after, -count, word)
                _change(pairs, nodes, keys, used, made << 32 | after, count, word)
            symbols[write] = made
            read += 1
        else:
            symbols[write] = symbols[read]
        read, write = read + 1, write + 1
    return write


@kernel
def _change(
    pairs: Numbers, nodes: Slots, keys: Numbers, used: Numbers, key: int, amount: int, word: int
) -> None:
    """Change the total of a pair; where it grows, a node remembers the word."""
    place = _place(pairs, key)
    if pairs[place, KEY] < 0:
        pairs[place, KEY], pairs[place, TOTAL], pairs[place, HEAD] = key, 0, 0
        used[0] += 1
    pairs[place, TOTAL] += amount
    head = pairs[place, HEAD]
    # The changes of a word come one after another, so a look at the newest node finds it noted.
    if amount > 0 and nodes[head, WORD] != word:
        node = used[1]
        nodes[node, WORD], nodes[node, NEXT], keys[node] = word, head, key
        pairs[place, HEAD] = node
        used[1] = node + 1


@kernel
def _queue(
    pairs: Numbers,
    nodes: Slots,
    keys: Numbers,
    used: Numbers,
    begin: int,
    heap: list[Entry],
    strings: tuple[Bytes, Offsets],
    lexical: bool,
) -> None:
    """Put the pairs of the nodes from `begin` on the heap, each with the list of its words."""
    for node in range(begin, used[1]):
        if nodes[node, NEXT] == 0:  # the first of its list
            key = keys[node]
            place = _place(pairs, key)
            if pairs[place, TOTAL] > 0:
                entry = (-pairs[place, TOTAL], key, pairs[place, HEAD])
                if lexical:
                    push(heap, entry, strings)
                else:
                    heapq.heappush(heap, entry)
            # The list is the heap's now; what is noted later begins
            # another, which is queued for itself.
            pairs[place, HEAD] = 0


@kernel
def _place(pairs: Numbers, key: int) -> np.int64:
    """Where a pair is in the table, or would be."""
    mask = len(pairs) - 1
    # From the middle of the product: its low bits know only the low bits of the right id.
    place = ((key * GOLDEN) >> 32) & mask
    while pairs[place, KEY] != key and pairs[place, KEY] >= 0:
        place = (place + 1) & mask
    return place


@kernel
def _no_nodes() -> Slots:
    """Nodes, of which the first stands for the end of a list."""
    nodes = np.zeros((1 << 12, 2), np.int32)
    nodes[0, WORD] = -1
    return nodes


@kernel
def _wider(
    pairs: Numbers, nodes: Slots, keys: Numbers, used: Numbers, size: int
) -> tuple[Numbers, Slots, Numbers]:
    """The tables, or larger ones, with room for what a word of `size` symbols may add."""
    if 2 * (used[0] + 2 * size) > len(pairs):
        wider = np.full((2 * len(pairs), 4), -1, np.int64)
        while 2 * (used[0] + 2 * size) > len(wider):
            wider = np.full((2 * len(wider), 4), -1, np.int64)
        for old in range(len(pairs)):
            if pairs[old, KEY] >= 0:
                wider[_place(wider, pairs[old, KEY])] = pairs[old]
        pairs = wider
    if used[1] + 2 * size > len(nodes):
        room = 2 * (used[1] + 2 * size)
        longer, more = np.zeros((room, 2), np.int32), np.zeros(room, np.int64)
        longer[: used[1]], more[: used[1]] = nodes[: used[1]], keys[: used[1]]
        nodes, keys = longer, more
    return pairs, nodes, keys


@kernel
def _byte_strings(ids: Numbers, most: int) -> tuple[Bytes, Offsets]:
    """The strings of tokens by id, with room for the ends of so many; those of the bytes so far."""
    offsets = np.zeros(most + 1, np.int64)
    for byte in range(256):
        offsets[ids[byte] + 1] = 1
    offsets = np.cumsum(offsets)
    data = np.zeros(1 << 16, np.uint8)
    for byte in range(256):
        data[offsets[ids[byte]]] = byte
    return data, offsets


@kernel
def _spelt(
    strings: tuple[Bytes, Offsets], left: int, right: int, new: int
) -> tuple[Bytes, Offsets]:
    """The strings, with that of a token joined from two."""
    data, offsets = strings
    size = offsets[new]
    for part in (left, right):
        begin, end = offsets[part], offsets[part + 1]
        if size + end - begin > len(data):
            data = np.concatenate((data, np.zeros(len(data) + end - begin, np.uint8)))
        data[size : size + end - begin] = data[begin:end]
        size += end - begin
    offsets[new + 1] = size
    return data, offsets


@kernel
def _byte_hashes(ids: Numbers, most: int) -> Numbers:
    """Room for the hashes of so many tokens, those of the bytes filled in.

    A token's string is known by its hash, a polynomial modulo 2^64: that of two strings joined is
    made of theirs. Of strings short as tokens, two in 10^9 vocabularies may have the same.
    """
    hashes = np.zeros((most, 2), np.int64)
    for byte in range(256):
        # No byte may have hash 0: in front of a string it would change nothing.
        hashes[ids[byte], HASH], hashes[ids[byte], POWER] = (byte + 1) * GOLDEN, BASE
    return hashes


@kernel
def _joined(hashes: Numbers, slots: Slots, left: int, right: int, new: int) -> int:
    """The id of the string that two tokens make: that of an equal one, or the `new` one."""
    power = hashes[right, POWER]
    hashed = hashes[left, HASH] * power + hashes[right, HASH]
    slot = ((hashed * GOLDEN) >> 32) & (len(slots) - 1)
    while slots[slot]:
        if hashes[slots[slot], HASH] == hashed:
            return int(slots[slot])
        slot = (slot + 1) & (len(slots) - 1)
    slots[slot] = new
    hashes[new, HASH], hashes[new, POWER] = hashed, hashes[left, POWER] * power
    return new
