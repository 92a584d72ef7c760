"""The plain spelling of texts (`obfuscation.fold`), natively, with the place of each byte."""

from tasks.data.kernels import kernel
from tasks.data.kernels.buffers import Bytes
from tasks.data.kernels.characters import decode
from tasks.data.privacy.obfuscation import GONE

OTHER = 0x81  # a character that has no plain spelling


@kernel
def fold_all(data, offsets, texts, folded, plain, places, ends):
    """Write the plain spelling of some texts, the place of each byte, and where each text ends."""
    n = 0
    for k in range(len(texts)):
        n = _fold(data, offsets[texts[k]], offsets[texts[k] + 1], folded, plain, places, n)
        ends[k + 1] = n


@kernel
def _fold(data, lo, hi, folded, plain, places, n):
    """Write one from n on; its end."""
    i = lo
    while i < hi:
        code, after = int(data[i]), i + 1
        if code >= 0x80:
            code, after = decode(data, i)
            if code < len(folded):
                code = folded[code]
        elif code == 0x26:
            meant, end = entity(data, i, hi)
            if meant:
                code, after = meant, end
        if code != GONE:
            plain[n] = code if code < 0x80 else OTHER
            places[n] = i
            n += 1
        i = after
    return n


@kernel
def entity(data: Bytes, at: int, hi: int) -> tuple[int, int]:
    """The character that an HTML entity of `obfuscation.ENTITY` stands for, and its end; else 0."""
    end = at + 1
    while end < min(hi, at + 12) and data[end] != 0x3B:
        end += 1
    if end >= hi or data[end] != 0x3B or end < at + 4:
        return 0, 0
    if data[at + 1] != 0x23:
        return _named_entity(data, at + 1, end), end + 1
    base, i = 10, at + 2
    if data[i] | 32 == 0x78:
        base, i = 16, i + 1
    significant = 2 if base == 16 else 3
    digits, code, zeros = 0, 0, 0
    for k in range(i, end):
        c = int(data[k])
        digit = c - 48 if 48 <= c <= 57 else (c | 32) - 87 if 97 <= (c | 32) <= 102 else 99
        if digit >= base:
            return 0, 0
        digits += 1
        zeros += digits == zeros + 1 and digit == 0
        code = code * base + digit
    if digits < 2 or digits - min(zeros, 4) > significant:
        return 0, 0
    return code if 0x20 <= code < 0x7F else 0x20, end + 1


@kernel
def _named_entity(data: Bytes, at: int, end: int) -> int:
    for name, meant in (
        (b"commat", 0x40), (b"period", 0x2E), (b"nbsp", 0x20),
        (b"lowbar", 0x5F), (b"plus", 0x2B), (b"colon", 0x3A),
    ):  # fmt: skip
        if len(name) == end - at:
            same = True
            for k in range(len(name)):
                same = same and data[at + k] == name[k]
            if same:
                return meant
    return 0
