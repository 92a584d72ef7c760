"""JSON lines in one native pass: the text of each plain line, and where its other fields lie.

The kernel takes a line only when it is sure: a strict JSON object (RFC 8259), valid UTF-8, no key
given twice at any level, the text a string with something in it and no NUL. Every other line is
left to the row path, which finds the reason; so both give the same.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from tasks.data.kernels import kernel
from tasks.data.kernels.buffers import Bytes, Offsets

GOOD, BLANK, UNSURE = 0, 1, 2
MAX_DEPTH = 64
MAX_KEYS = 256  # of all objects that are open at once
MAX_DIGITS = 300
QUOTE, BACKSLASH, COMMA, COLON = 0x22, 0x5C, 0x2C, 0x3A
CURLY, CLOSE_CURLY, SQUARE, CLOSE_SQUARE = 0x7B, 0x7D, 0x5B, 0x5D
CR, LF, SPACE = 0x0D, 0x0A, 0x20
# What must come next.
VALUE, FIRST_VALUE, KEY, FIRST_KEY, NEXT = range(5)
FNV_OFFSET, FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)


@kernel
def scan_lines(
    data: Bytes,
    ends: Offsets,
    names: Bytes,
    bounds: Offsets,
    fields: int,
    status: npt.NDArray[np.uint8],
    texts: Bytes,
    offsets: Offsets,
    spans: npt.NDArray[np.int64],
) -> int:
    """Sort the lines of a block; the number of good ones.

    data: the block, with an LF after every line, at `ends [lines]`
    names, bounds: wanted keys, packed; those from `fields` on must not occur, the first is the text
    out: status [lines]; of the good lines, in order: texts and offsets [good + 1], and for every
    field where its value begins and ends, spans [good, 2 * fields], 0 and 0 where it is absent
    """
    hashes = np.empty(MAX_KEYS, np.uint64)
    bases = np.empty(MAX_DEPTH + 1, np.int64)
    objects = np.empty(MAX_DEPTH + 1, np.bool_)
    # Plain zeros are literal types to Numba, which would compile everything for them again.
    zero: Any = np.int64(0)
    good, written, start = zero, zero, zero
    offsets[0] = 0
    for line in range(len(ends)):
        at = _skip_space(data, start)
        if at == ends[line]:
            status[line] = BLANK
        else:
            spans[good] = 0
            after = _line(
                data, at, ends[line], names, bounds, fields,
                hashes, bases, objects, texts, written, spans[good],
            )  # fmt: skip
            status[line] = UNSURE if after < 0 else GOOD
            if after >= 0:
                written, good = after, good + 1
                offsets[good] = written
        start = ends[line] + 1
    return good


@kernel
def _line(
    data: Bytes,
    at: int,
    end: int,
    names: Bytes,
    bounds: Offsets,
    fields: int,
    hashes: npt.NDArray[np.uint64],
    bases: Offsets,
    objects: npt.NDArray[np.bool_],
    texts: Bytes,
    written: int,
    spans: npt.NDArray[np.int64],
) -> int:
    """Bytes of text written so far after this line's, or -1 when it is not plain."""
    if data[at] != CURLY:
        return -1
    zero: Any = np.int64(0)
    depth, keys, field, opened, state = 1, zero, -1, 0, FIRST_KEY
    bases[1], objects[1] = 0, True
    at, found = at + 1, False
    while depth > 0:
        at = _skip_space(data, at)
        byte = data[at]
        if state == KEY or (state == FIRST_KEY and byte != CLOSE_CURLY):
            if byte != QUOTE or keys == MAX_KEYS:
                return -1
            start = at + 1
            at, hashes[keys] = _key(data, start)
            if at < 0 or _repeated(hashes, bases[depth], keys):
                return -1
            keys += 1
            if depth == 1:
                field = _field(data, start, at, names, bounds)
                if field >= fields:
                    return -1
            at = _skip_space(data, at + 1)
            if data[at] != COLON:
                return -1
            at, state = at + 1, VALUE
            continue
        if state == VALUE or (state == FIRST_VALUE and byte != CLOSE_SQUARE):
            if depth == 1:
                opened = at
            if byte in (CURLY, SQUARE):
                if depth == MAX_DEPTH or (depth == 1 and field == 0):
                    return -1
                depth += 1
                bases[depth], objects[depth] = keys, byte == CURLY
                at, state = at + 1, FIRST_KEY if byte == CURLY else FIRST_VALUE
                continue
            if depth == 1 and field == 0:
                if byte != QUOTE:
                    return -1
                at, written = _text(data, at + 1, texts, written)
                found = True
            elif byte == QUOTE:
                at = _string(data, at + 1)
            else:
                at = _scalar(data, at)
            if at < 0:
                return -1
        elif state == NEXT and byte == COMMA:
            at, state = at + 1, KEY if objects[depth] else VALUE
            continue
        elif byte == (CLOSE_CURLY if objects[depth] else CLOSE_SQUARE):
            keys = bases[depth]
            at, depth = at + 1, depth - 1
        else:
            return -1
        state = NEXT
        if depth == 1 and field >= 0:
            spans[2 * field], spans[2 * field + 1] = opened, at
    return written if found and _skip_space(data, at) == end else -1


@kernel
def _skip_space(data: Bytes, at: int) -> int:
    while data[at] == SPACE or data[at] == 0x09 or data[at] == CR:
        at += 1
    return at


@kernel
def _repeated(hashes: npt.NDArray[np.uint64], base: int, count: int) -> bool:
    found = False
    for other in range(base, count):
        found = found or hashes[other] == hashes[count]
    return found


@kernel
def _field(data: Bytes, start: int, end: int, names: Bytes, bounds: Offsets) -> int:
    """The number of the wanted key that lies here, or -1."""
    for number in range(len(bounds) - 1):
        first = bounds[number]
        if bounds[number + 1] - first == end - start:
            same = True
            for i in range(end - start):
                same = same and data[start + i] == names[first + i]
            if same:
                return number
    return -1


@kernel
def _key(data: Bytes, at: int) -> tuple[int, np.uint64]:
    """The place of the closing quote (-1: not a plain string) and the hash of what is before."""
    value = FNV_OFFSET
    while data[at] != QUOTE:
        size = 1 if 0x20 <= data[at] < 0x80 else sequence(data, at)
        if size == 0 or data[at] == BACKSLASH:
            return -1, value
        for i in range(size):
            value = (value ^ np.uint64(data[at + i])) * FNV_PRIME
        at += size
    return at, value


@kernel
def _string(data: Bytes, at: int) -> int:
    """The place after a string that nobody wants, or -1."""
    while True:
        while data[at] >= 0x20 and data[at] < 0x80 and data[at] != QUOTE and data[at] != BACKSLASH:
            at += 1
        if data[at] == QUOTE:
            return at + 1
        size = _escape(data, at) if data[at] == BACKSLASH else sequence(data, at)
        if size == 0:
            return -1
        at += size


@kernel
def _text(data: Bytes, at: int, out: Bytes, written: int) -> tuple[int, int]:
    """Write a string's characters, CR LF as LF; the place after it (-1: not plain) and in `out`."""
    start, solid = written, False
    while True:
        while data[at] >= 0x20 and data[at] < 0x80 and data[at] != QUOTE and data[at] != BACKSLASH:
            solid = solid or data[at] != SPACE
            out[written] = data[at]
            at, written = at + 1, written + 1
        if data[at] == QUOTE:
            return at + 1 if solid else -1, written
        if data[at] != BACKSLASH:
            size = sequence(data, at)
            if size == 0:
                return -1, written
            # White space begins with C2, E1, E2 or E3; what is left to the row path is rare.
            solid = solid or (data[at] > 0xC2 and data[at] < 0xE1) or data[at] > 0xE3
            for i in range(size):
                out[written + i] = data[at + i]
            at, written = at + size, written + size
            continue
        size = _escape(data, at)
        code = _escaped(data, at) if size else 0
        if 0xD800 <= code < 0xDC00 and data[at + 6] == BACKSLASH and _escape(data, at + 6) == 6:
            low = _escaped(data, at + 6)
            if 0xDC00 <= low < 0xE000:
                code, size = 0x10000 + ((code - 0xD800) << 10 | (low - 0xDC00)), 12
        if code == 0 or 0xD800 <= code < 0xE000:
            return -1, written
        at += size
        if code == LF and written > start and out[written - 1] == CR:
            out[written - 1] = LF
        else:
            solid = solid or 0x20 < code < 0x7F
            written = _encode(code, out, written)


@kernel
def _escape(data: Bytes, at: int) -> int:
    """The length of an escape, 0 when it is none."""
    byte = data[at + 1]
    if byte == 0x75:  # u
        for i in range(at + 2, at + 6):
            if _hex(data[i]) < 0:
                return 0
        return 6
    simple = byte in (QUOTE, BACKSLASH, 0x2F, 0x62, 0x66, 0x6E, 0x72, 0x74)  # " \ / b f n r t
    return 2 if simple else 0


@kernel
def _escaped(data: Bytes, at: int) -> int:
    """The character of an escape."""
    byte = data[at + 1]
    if byte == 0x75:
        code = 0
        for i in range(at + 2, at + 6):
            code = code << 4 | _hex(data[i])
        return code
    if byte == 0x6E:  # n
        return LF
    if byte == 0x72:  # r
        return CR
    if byte == 0x74:  # t
        return 0x09
    if byte == 0x62:  # b
        return 0x08
    return 0x0C if byte == 0x66 else int(byte)  # f


@kernel
def _hex(byte: int) -> int:
    if 0x30 <= byte <= 0x39:
        return byte - 0x30
    letter = byte | 0x20
    return letter - 0x57 if 0x61 <= letter <= 0x66 else -1


@kernel
def _encode(code: int, out: Bytes, at: int) -> int:
    """Write a character as UTF-8; the place after it."""
    if code < 0x80:
        out[at] = code
        return at + 1
    if code < 0x800:
        out[at] = 0xC0 | code >> 6
    elif code < 0x10000:
        out[at] = 0xE0 | code >> 12
        at += 1
        out[at] = 0x80 | code >> 6 & 0x3F
    else:
        out[at], out[at + 1] = 0xF0 | code >> 18, 0x80 | code >> 12 & 0x3F
        at += 2
        out[at] = 0x80 | code >> 6 & 0x3F
    out[at + 1] = 0x80 | code & 0x3F
    return at + 2


@kernel
def _scalar(data: Bytes, at: int) -> int:
    """The place after a number, `true`, `false` or `null`, or -1."""
    if data[at] == 0x74:
        return at + 4 if data[at + 1] == 0x72 and data[at + 2] == 0x75 and data[at + 3] == 0x65 \
            else -1  # fmt: skip
    if data[at] == 0x6E:
        return at + 4 if data[at + 1] == 0x75 and data[at + 2] == 0x6C and data[at + 3] == 0x6C \
            else -1  # fmt: skip
    if data[at] == 0x66:
        same = data[at + 1] == 0x61 and data[at + 2] == 0x6C and data[at + 3] == 0x73
        return at + 5 if same and data[at + 4] == 0x65 else -1
    return _number(data, at)


@kernel
def _number(data: Bytes, at: int) -> int:
    first = at
    if data[at] == 0x2D:
        at += 1
    after = _digits(data, at)
    if after == at or (data[at] == 0x30 and after > at + 1):
        return -1
    at = after
    if data[at] == 0x2E:
        after = _digits(data, at + 1)
        if after == at + 1:
            return -1
        at = after
    if data[at] == 0x65 or data[at] == 0x45:
        at += 1
        if data[at] == 0x2B or data[at] == 0x2D:
            at += 1
        after = _digits(data, at)
        if after == at:
            return -1
        at = after
    return at if at - first <= MAX_DIGITS else -1


@kernel
def _digits(data: Bytes, at: int) -> int:
    while 0x30 <= data[at] <= 0x39:
        at += 1
    return at


@kernel
def sequence(data: Bytes, at: int) -> int:
    """The length of the UTF-8 sequence of 2 to 4 bytes here, 0 when it is not valid.

    Reads no further than the first byte that cannot belong to it, so an ASCII byte behind the data
    is enough of a guard.
    """
    first, low, high = data[at], 0x80, 0xBF
    if 0xC2 <= first <= 0xDF:
        size = 2
    elif 0xE0 <= first <= 0xEF:
        size = 3
        low = 0xA0 if first == 0xE0 else 0x80
        high = 0x9F if first == 0xED else 0xBF
    elif 0xF0 <= first <= 0xF4:
        size = 4
        low = 0x90 if first == 0xF0 else 0x80
        high = 0x8F if first == 0xF4 else 0xBF
    else:
        return 0
    if not low <= data[at + 1] <= high:
        return 0
    for i in range(at + 2, at + size):
        if data[i] & 0xC0 != 0x80:
            return 0
    return size
