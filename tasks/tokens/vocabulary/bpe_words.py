"""The words of a text, by the pattern `cl100k`, as a kernel finds them."""

import numpy as np
import numpy.typing as npt

from tasks.data.kernels import kernel
from tasks.data.kernels.buffers import Bytes, Offsets
from tasks.data.kernels.characters import decode

LETTER, NUMBER, SPACE, NEWLINE = 1, 2, 4, 8  # a newline is a space too; the rest is 0
APOSTROPHE, BLANK, LONG_S = 0x27, 0x20, 0x17F


@kernel
def word_bounds(data: Bytes, offsets: Offsets, kinds: Bytes) -> npt.NDArray[np.int64]:
    """Where the words of all texts begin, and the last one ends; `kinds`: bits of code points."""
    bounds, words = np.empty(len(data) + 1, np.int64), 0
    bounds[0] = offsets[0]
    for text in range(len(offsets) - 1):
        while bounds[words] < offsets[text + 1]:
            bounds[words + 1] = word_end(data, bounds[words], offsets[text + 1], kinds)
            words += 1
    return bounds[: words + 1]


@kernel
def word_end(data: Bytes, at: int, end: int, kinds: Bytes) -> int:
    """Where the word that begins at a place ends, by the pattern `cl100k`."""
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
        # One sign or space, but no newline, goes with the letters behind it.
        if second_kind & LETTER and not kind & NEWLINE:
            return _run(data, second, end, kinds, LETTER)
    if not kind & SPACE:
        return _newlines(data, _run(data, after, end, kinds, 0), end)
    # A blank, but no other space, goes with the signs behind it.
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
    # Three at most, of which one is read.
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
    # Without regard to case the long s is an s; so the pattern has it.
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
