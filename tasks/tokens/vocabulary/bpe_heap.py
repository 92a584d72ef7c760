"""A heap of pairs with lexical ties: of equally frequent pairs the one whose strings are greatest.

It is `heapq` for kernels in another order than that of the entries `(-total, key, head)`: every
merge makes a new string, so no number can stand for its place among the others.
"""

from tasks.data.kernels import kernel
from tasks.data.kernels.buffers import Bytes, Offsets

Entry = tuple[int, int, int]


@kernel
def push(heap: list[Entry], entry: Entry, strings: tuple[Bytes, Offsets]) -> None:
    """Put a pair on the heap; `strings`: those of all tokens, by id."""
    heap.append(entry)
    _rise(heap, len(heap) - 1, entry, strings)


@kernel
def pop(heap: list[Entry], strings: tuple[Bytes, Offsets]) -> Entry:
    """Take the first pair from a heap that is not empty."""
    last = heap.pop()
    if not len(heap):
        return last
    first, place = heap[0], 0
    # Down to a leaf along the first of each two, then up: few of the last ones belong far from it.
    while 2 * place + 1 < len(heap):
        child = 2 * place + 1
        if child + 1 < len(heap) and _sooner(heap[child + 1], heap[child], strings):
            child += 1
        heap[place], place = heap[child], child
    _rise(heap, place, last, strings)
    return first


@kernel
def _rise(heap: list[Entry], place: int, entry: Entry, strings: tuple[Bytes, Offsets]) -> None:
    while place and _sooner(entry, heap[(place - 1) >> 1], strings):
        parent = (place - 1) >> 1
        heap[place], place = heap[parent], parent
    heap[place] = entry


@kernel
def _sooner(one: Entry, other: Entry, strings: tuple[Bytes, Offsets]) -> bool:
    if one[0] != other[0]:
        return one[0] < other[0]
    order = _compare(one[1] >> 32, other[1] >> 32, strings)
    if not order:
        order = _compare(one[1] & 0xFFFFFFFF, other[1] & 0xFFFFFFFF, strings)
    return order > 0


@kernel
def _compare(one: int, other: int, strings: tuple[Bytes, Offsets]) -> int:
    """Above 0 where the first token's string is the greater one, 0 where both are the same."""
    data, offsets = strings
    a, b = offsets[one], offsets[other]
    while a < offsets[one + 1] and b < offsets[other + 1]:
        if data[a] != data[b]:
            return 1 if data[a] > data[b] else -1
        a, b = a + 1, b + 1
    return (offsets[one + 1] - a) - (offsets[other + 1] - b)
