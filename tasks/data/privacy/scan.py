"""One native pass that marks the few places of a batch of texts that can hold an instance.

The pass is a sieve: every place at which a finder finds something in the whole text is marked, and
few others; the finders then look at those alone (batch.py). A text with characters beyond ASCII or
HTML entities is first written down in its plain spelling (disguise.py), where a character that has
none is `OTHER`; marks are turned back into places of the original.

`t`: bytes of a text in plain spelling; `lo`, `hi`: where the text begins and ends in `t`.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tasks.data.kernels import kernel
from tasks.data.kernels.buffers import Bytes, Offsets
from tasks.data.kernels.characters import decode
from tasks.data.privacy import credentials, phones
from tasks.data.privacy.accounts import IBAN_LENGTHS
from tasks.data.privacy.disguise import GONE, table

# What is looked for, each a bit of `wanted`; marks carry the number of the bit.
SIEVES = ("secret", "private_key", "email", "iban", "card", "national_id", "ip", "phone", "address")
SECRET, PRIVATE_KEY, EMAIL, IBAN, CARD, NATIONAL_ID, IP, PHONE, ADDRESS = range(len(SIEVES))
OTHER = 0x81
# What the pass stops at; it runs over all other bytes without a look.
DIGIT, AT, COLON, EQUALS, BRACKET, DOT, BEGIN, AMPERSAND, FOREIGN = range(1, 10)
STOPS = {"@": AT, ":": COLON, "=": EQUALS, "d": DOT, "D": DOT, "B": BEGIN, "&": AMPERSAND}
STOPS |= dict.fromkeys("([{<", BRACKET) | dict.fromkeys("0123456789", DIGIT)
# Sets of bytes, a bit each beside the stop: of words, of words or beyond ASCII, of the part before
# an "@", of hexadecimal numbers, of values, white space.
STOP_BITS = 15
WORD, WORDISH, LOCAL, HEX, VALUE, BLANK = (1 << k for k in range(4, 10))
TOKEN_BACK = 64
HEX_DIGITS = "0123456789abcdefABCDEF"


class Tables(NamedTuple):
    """What the pass looks bytes and words up in."""

    flags: npt.NDArray[np.uint16]  # by byte: its stop, and the sets it is in
    folded: npt.NDArray[np.uint32]  # code points as what they are read as
    prefixes: npt.NDArray[np.bool_]  # by three bytes of seven bits: begins a known token
    lengths: npt.NDArray[np.uint8]  # of an IBAN, by two letters of five bits
    words: tuple[npt.NDArray[np.uint8], Offsets, int]  # that announce a telephone; their reach
    names: tuple[npt.NDArray[np.uint8], Offsets, int]  # that tell of a secret; their reach

    @property
    def of_texts(self) -> tuple[Any, ...]:
        """All but what folding needs."""
        return self.flags, self.prefixes, self.lengths, self.words, self.names


def scan(data: Bytes, offsets: Offsets, wanted: int) -> npt.NDArray[np.int64]:
    """`[marks, 4]`: text, first and last byte, number of the sieve; in the order of the texts."""
    looked = tables()
    foreign = np.zeros(len(offsets) - 1, np.bool_)
    marks = _sieve_all(data, offsets, wanted, foreign, True)
    if not foreign.any():
        return marks
    texts = np.flatnonzero(foreign)
    room = int((offsets[texts + 1] - offsets[texts]).sum()) + 1
    plain, places = np.empty(room, np.uint8), np.empty(room, np.int64)
    ends = np.zeros(len(texts) + 1, np.int64)
    _fold_all(data, offsets, texts, looked.folded, plain, places, ends)
    plain.flags.writeable = False  # the type of Arrow's buffers: compiled once for both
    more = _sieve_all(plain, ends, wanted, np.zeros(len(texts), np.bool_), False)
    ended = more[:, 2] == ends[more[:, 0] + 1]
    more[:, 0] = texts[more[:, 0]]
    more[:, 1:3] = places[np.minimum(more[:, 1:3], room - 1)]
    more[ended, 2] = offsets[more[ended, 0] + 1]
    merged = np.concatenate([marks, more])
    return merged[np.argsort(merged[:, 0], kind="stable")]


def _sieve_all(
    data: Bytes, offsets: Offsets, wanted: int, foreign: npt.NDArray[np.bool_], plain: bool
) -> npt.NDArray[np.int64]:
    """The marks of all texts; those in another than plain spelling have none, and are noted."""
    capacity = 1024 + len(data) // 256
    while True:
        marks = np.empty((capacity, 4), np.int64)
        _sieve_texts(data, offsets, wanted, foreign, plain, marks, *tables().of_texts)
        count = int(marks[0, 0])
        if count < capacity:
            return marks[1 : count + 1]
        capacity = count + 1


@cache
def tables() -> Tables:
    """The tables of the pass."""
    flags = np.zeros(256, np.uint16)
    for code in range(256):
        c = chr(code) if code < 0x80 else "\0"
        stop = FOREIGN if code >= 0x80 else STOPS.get(c, 0)
        word = c.isalnum() or c == "_"
        wordish = word or code >= 0x80
        value = c.isalnum() or c in "+/=_.!@#$%^&*~-"
        sets = (word, wordish, wordish or c in ".%+'-", c in HEX_DIGITS, value, c.isspace())
        flags[code] = stop | sum(bool(member) << k for k, member in enumerate(sets, 4))
    prefixes = np.zeros(1 << 21, np.bool_)
    for prefix in credentials.PREFIXES:
        prefixes[_triple(*prefix.encode())] = True
    lengths = np.zeros(1 << 10, np.uint8)
    for country, length in IBAN_LENGTHS.items():
        lengths[(ord(country[0]) & 31) << 5 | ord(country[1]) & 31] = length
    announcing = {w for w in (*phones.STRONG, *phones.WEAK, *phones.BEHIND) if w.isascii()}
    words = _joined(sorted(announcing), phones.BEFORE_REACH)
    names = _joined(credentials.NAMES, credentials.NAME_CHARS)
    return Tables(flags, table(), prefixes, lengths, words, names)


def _joined(words: Sequence[str], reach: int) -> tuple[npt.NDArray[np.uint8], Offsets, int]:
    joined = np.frombuffer("".join(words).encode(), np.uint8)
    return joined, np.cumsum([0, *map(len, words)]).astype(np.int64), reach


@kernel
def _triple(a: int, b: int, c: int) -> int:
    return (a & 127) << 14 | (b & 127) << 7 | c & 127


@kernel
def _sieve_texts(  # type: ignore[no-untyped-def]
    data, offsets, wanted, foreign, plain, marks, flags, prefixes, lengths, words, names
):
    marks[0, 0] = 0
    for text in range(len(foreign)):
        first = marks[0, 0]
        if not _sieve(
            data, offsets[text], offsets[text + 1], plain, wanted, marks,
            flags, prefixes, lengths, words, names,
        ):  # fmt: skip
            foreign[text] = True
            marks[0, 0] = first
        for k in range(first + 1, min(marks[0, 0] + 1, len(marks))):
            marks[k, 0] = text


@kernel
def _fold_all(data, offsets, texts, folded, plain, places, ends):  # type: ignore[no-untyped-def]
    """Write the plain spelling of some texts, the place of each byte, and where each text ends."""
    n = 0
    for k in range(len(texts)):
        n = _fold(data, offsets[texts[k]], offsets[texts[k] + 1], folded, plain, places, n)
        ends[k + 1] = n


@kernel
def _fold(data, lo, hi, folded, plain, places, n):  # type: ignore[no-untyped-def]
    """Write one from n on; its end."""
    i = lo
    while i < hi:
        code, after = int(data[i]), i + 1
        if code >= 0x80:
            code, after = decode(data, i)
            if code < len(folded):
                code = folded[code]
        elif code == 0x26:
            meant, end = _entity(data, i, hi)
            if meant:
                code, after = meant, end
        if code != GONE:
            plain[n] = code if code < 0x80 else OTHER
            places[n] = i
            n += 1
        i = after
    return n


@kernel
def _entity(data: Bytes, at: int, hi: int) -> tuple[int, int]:
    """The character that an HTML entity of `disguise.ENTITY` stands for, and its end; else 0."""
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


@kernel
def _mark(marks, wanted, sieve, lo, hi):  # type: ignore[no-untyped-def]
    """Note a place, if that sieve is wanted. The first row counts the marks, also those for which
    there is no room.
    """
    if wanted >> sieve & 1:
        marks[0, 0] += 1
        if marks[0, 0] < len(marks):
            place = marks[0, 0]
            marks[place, 1], marks[place, 2], marks[place, 3] = lo, hi, sieve


@kernel
def _sieve(t, lo, hi, plain, wanted, marks, flags, prefixes, lengths, words, names):  # type: ignore[no-untyped-def]
    """Mark one text; whether it was in the spelling it was said to be in."""
    i = lo
    numbers = False
    while i < hi:
        stop = flags[t[i]] & STOP_BITS
        if stop == 0:
            i += 1
        elif stop == DIGIT:
            numbers = True
            if i > lo and flags[t[i - 1]] & WORD:
                i = _word(t, lo, hi, i, wanted, marks, flags, prefixes, lengths)
            else:
                i = _number(t, lo, hi, i, wanted, marks, flags, words)
        elif stop == FOREIGN:
            if plain:
                return False
            i += 1
        elif stop == AMPERSAND:
            if plain and _entity(t, i, hi)[0]:
                return False
            i += 1
        else:
            _sign(t, lo, hi, i, stop, wanted, marks, flags, names)
            i += 1
    if numbers:
        _mark(marks, wanted, ADDRESS, lo, hi)
    return True


@kernel
def _word(t, lo, hi, i, wanted, marks, flags, prefixes, lengths):  # type: ignore[no-untyped-def]
    """A word with its first digit at i: of a token, an IBAN or an identity number; its end."""
    first, j = i, i + 1
    while first > lo and flags[t[first - 1]] & WORD:
        first -= 1
    digits = 1
    while j < hi and flags[t[j]] & WORD:
        digits += _is_digit(t[j])
        j += 1
    if digits >= 5 and 8 <= j - first <= 18 and 65 <= t[first] <= 90:
        _mark(marks, wanted, NATIONAL_ID, first, j)
    if wanted >> SECRET & 1:
        _token(t, lo, hi, first, j, wanted, marks, flags, prefixes)
    length = lengths[(int(t[first]) & 31) << 5 | int(t[first + 1]) & 31]
    if i == first + 2 and length and j > i + 1 and _is_digit(t[i + 1]):
        k, found = i + 2, 4
        while k < hi and found < length:
            if flags[t[k]] & WORD:
                found += 1
            elif not (t[k] == 0x20 or t[k] == 0x2D) or not flags[t[k - 1]] & WORD:
                break
            k += 1
        if found == length:
            _mark(marks, wanted, IBAN, first, k)
    return j


@kernel
def _token(t, lo, hi, first, j, wanted, marks, flags, prefixes):  # type: ignore[no-untyped-def]
    """Mark the token of known form that the word at `first` to j is part of."""
    end = j
    while end < hi and flags[t[end]] & VALUE:
        end += 1
    k = first
    while True:
        begins = end - k >= 15 and (k == lo or not flags[t[k - 1]] & WORD)
        if begins and prefixes[_triple(t[k], t[k + 1], t[k + 2])]:
            _mark(marks, wanted, SECRET, k, end)
            return
        if k == lo or first - k > TOKEN_BACK or not flags[t[k - 1]] & VALUE:
            break
        k -= 1


@kernel
def _number(t, lo, hi, i, wanted, marks, flags, words):  # type: ignore[no-untyped-def]
    """A run of digits and separators that begins at i (`spans.RUN`); its end, and the marks."""
    digits, groups, dotted, fours, threes = 0, 0, 0, 0, 0
    before, last = 0, 0  # lengths of the two groups before
    ip, card, american, wide = False, False, False, False
    plus = _is_signed(t, lo, i)
    j, separator, width = i, 0, 0
    while True:
        first = j
        while j < hi and _is_digit(t[j]):
            j += 1
        n = j - first
        digits += n
        groups += 1
        dotted = 0 if n > 3 else dotted + 1 if separator == 0x2E and width == 1 else 1
        ip |= dotted >= 4
        american |= n == 4 and last == 3 and before == 3
        fours = fours + 1 if n == 4 else 0
        decimal = separator == 0x2E and n > 4
        threes += 1 if n == 3 else 2 * (n > 3 and not decimal)
        card |= fours >= 3 or (n == 6 and last == 4) or (12 <= n <= 19 and _luhn(t, first, j))
        before, last = last, n
        end = j
        while end < hi and end - j < 3 and _separates(t[end]):
            end += 1
        if end in (j, hi) or not _is_digit(t[end]):
            break
        for k in range(j, end):
            plus |= t[k] == 0x2B and t[end] != 0x30
        separator, width = t[j], end - j
        wide |= width > 2
        j = end
    if ip:
        _mark(marks, wanted, IP, i, j)
    if card and digits >= 12:
        _mark(marks, wanted, CARD, i, j)
    lettered = digits >= 6 and i - 2 >= lo and _begins_id(t, lo, i)
    if lettered or (digits >= 8 and threes >= 2):  # every form has such groups
        _mark(marks, wanted, NATIONAL_ID, max(lo, i - 3 * lettered), j)
    if digits >= 7 and wanted >> PHONE & 1:
        trunk = t[i] == 0x30 and _is_digit(t[i + 1]) and 2 <= groups <= 5 and not wide
        if american or plus or trunk or _is_announced(t, lo, hi, i, j, words):
            _mark(marks, wanted, PHONE, i, j)
    return j


@kernel
def _is_signed(t: Bytes, lo: int, i: int) -> bool:
    """Whether "+" or "+(" precedes a number that begins with no 0, and is no sum or exponent."""
    k = i - 1 - (i > lo and t[i - 1] == 0x28)
    if k < lo or t[k] != 0x2B or t[i] == 0x30:
        return False
    return k == lo or not _is_alphanumeric(t[k - 1])


@kernel
def _begins_id(t: Bytes, lo: int, i: int) -> bool:
    """Whether capitals stand apart before the digits: two (British) or one of X, Y, Z (Spanish)."""
    if t[i - 1] == 0x20:
        return i - 3 >= lo and 65 <= t[i - 2] <= 90 and 65 <= t[i - 3] <= 90
    return t[i - 1] == 0x2D and 0x58 <= t[i - 2] <= 0x5A


@kernel
def _is_digit(c: int) -> bool:
    return 48 <= c <= 57


@kernel
def _separates(c: int) -> bool:
    return c == 0x20 or c == 0x2D or c == 0x2E or c == 0x2F or c == 0x28 or c == 0x29 or c == 0x2B


@kernel
def _luhn(t: Bytes, first: int, end: int) -> bool:
    total = 0
    for k in range(end - first):
        digit = int(t[end - 1 - k]) - 48
        if k & 1:
            digit = digit * 2 - 9 if digit > 4 else digit * 2
        total += digit
    return total % 10 == 0


@kernel
def _is_announced(t, lo, hi, i, j, words):  # type: ignore[no-untyped-def]
    """Whether a word for telephone may stand before i or right behind j. Any character beyond ASCII
    may be part of one.
    """
    reach = words[2]
    for k in range(max(lo, i - reach - 1), i):
        if t[k] >= 0x80:
            return True
        begins = k <= i - reach + 1 or k == lo or not _is_alphanumeric(t[k - 1])
        if begins and t[k] | 32 >= 0x61 and _starts_word(t, k, hi, words):
            return True
    for k in range(j + 1, min(hi, j + 4)):
        if t[k] | 32 >= 0x61 and _starts_word(t, k, hi, words):
            return True
    return False


@kernel
def _is_alphanumeric(c: int) -> bool:
    return 48 <= c <= 57 or 97 <= (c | 32) <= 122


@kernel
def _starts_word(t, k, hi, words):  # type: ignore[no-untyped-def]
    """Whether one of the words, in either case, begins at k."""
    joined, offsets, _ = words
    for w in range(len(offsets) - 1):
        length = offsets[w + 1] - offsets[w]
        if t[k] | 32 == joined[offsets[w]] and k + length <= hi:
            same = True
            for m in range(1, length):
                c = t[k + m]
                same = same and (c | 32 if c < 0x5B else c) == joined[offsets[w] + m]
            if same:
                return True
    return False


@kernel
def _sign(t, lo, hi, i, stop, wanted, marks, flags, names):  # type: ignore[no-untyped-def]
    """A character that an address, an assignment, a URL or a key hangs on."""
    if stop == AT:
        if _is_address(t, lo, hi, i, flags):
            _mark(marks, wanted, EMAIL, i, i + 1)
    elif stop in (COLON, EQUALS):
        if stop == COLON:
            _colon(t, lo, hi, i, wanted, marks, flags)
        if _is_assigned(t, lo, hi, i, flags, names):
            _mark(marks, wanted, SECRET, i, i + 1)
    elif stop == DOT:
        apart = i > lo and i + 2 < hi and not _is_alphanumeric(t[i - 1])
        if apart and t[i + 2] | 32 == 0x74 and (i + 3 == hi or not _is_alphanumeric(t[i + 3])):
            _mark(marks, wanted, EMAIL, max(lo, i - 100), i)
    elif stop == BEGIN and i + 5 < hi:
        dashed = i - 5 >= lo and t[i - 1] == 0x2D and t[i - 5] == 0x2D
        if dashed and t[i + 1] == 0x45 and t[i + 4] == 0x4E:  # -----BEGIN
            _mark(marks, wanted, PRIVATE_KEY, i - 5, min(hi, i + 75))
        elif t[i + 1] | 32 == 0x65 or t[i + 1] | 32 == 0x61:  # Bearer, Basic
            _mark(marks, wanted * _ends_scheme(t, i, hi), SECRET, i, min(hi, i + 7))
    elif stop == BRACKET and i + 3 < hi:
        k = i + 1 + (t[i + 1] == 0x20)
        word = t[k] | 32 == 0x61 and t[k + 1] | 32 == 0x74
        if word and k + 2 < hi and not _is_alphanumeric(t[k + 2]):
            _mark(marks, wanted, EMAIL, i, k + 3)


@kernel
def _ends_scheme(t: Bytes, i: int, hi: int) -> bool:
    """Whether a word of the length of "Basic" or "Bearer", and its last letter, is followed by a
    space and something.
    """
    if i + 7 < hi and t[i + 6] == 0x20 and t[i + 5] | 32 == 0x72:
        return True
    return i + 6 < hi and t[i + 5] == 0x20 and t[i + 4] | 32 == 0x63


@kernel
def _is_address(t, lo, hi, i, flags):  # type: ignore[no-untyped-def]
    """Whether something like a local part precedes, and a domain with a dot follows, the "@"."""
    if i == lo or i + 3 > hi:
        return False
    k = i + 1
    while k < min(hi, i + 4) and not flags[t[k]] & WORDISH:
        if t[k] != 0x20 and t[k] != 0x5D and t[k] != 0x29 and t[k] != 0x7D and t[k] != 0x3E:
            return k == i + 1 and t[k] == 0x2D
        k += 1
    if k == i + 1 and not flags[t[i - 1]] & LOCAL:
        return False
    if k > i + 1 and flags[t[i - 1]] & LOCAL:
        return False
    while k < hi and (flags[t[k]] & WORDISH or t[k] == 0x2D):
        k += 1
    if k + 1 >= hi:
        return False
    if t[k] == 0x2E or t[k] == 0x5B or t[k] == 0x28 or t[k] == 0x7B or t[k] == 0x3C:
        return True
    n = t[k + 1]
    spelled = n | 32 == 0x64 or n == 0x2E or n == 0x5B or n == 0x28 or n == 0x7B or n == 0x3C
    return t[k] == 0x20 and spelled


@kernel
def _is_assigned(t, lo, hi, i, flags, names):  # type: ignore[no-untyped-def]
    """Whether a value that may be a secret follows, and a telling name precedes, the sign."""
    k = i + 1
    if k < hi and (t[k] == 0x3D or t[k] == 0x3A):
        return False
    if k < hi and t[k] == 0x3E:
        k += 1
    for _ in range(4):
        k += k < hi and flags[t[k]] & BLANK != 0
    k += k < hi and (t[k] == 0x22 or t[k] == 0x27)
    first, upper, lower, digit, other = k, 0, 0, 0, 0
    while k < hi and k - first < 256 and flags[t[k]] & VALUE:
        c = t[k]
        digit |= 48 <= c <= 57
        upper |= 65 <= c <= 90
        lower |= 97 <= c <= 122
        other |= not _is_alphanumeric(c)
        k += 1
    if k - first < 8 or (k - first < 16 and upper + lower + digit + other < 3):
        return False
    if k - first >= 16 and not (digit and upper | lower) and upper + lower + digit + other < 3:
        return False
    k = i
    for _ in range(2):
        k -= k > lo and (t[k - 1] == 0x3D or t[k - 1] == 0x3A)
    for _ in range(4):
        k -= k > lo and flags[t[k - 1]] & BLANK != 0
    k -= k > lo and (t[k - 1] == 0x22 or t[k - 1] == 0x27)
    first = k
    while (
        first > lo
        and i - first < names[2]
        and (flags[t[first - 1]] & WORDISH or t[first - 1] == 0x2D)
    ):
        first -= 1
    for place in range(first, k):
        if t[place] | 32 >= 0x61 and _starts_word(t, place, k, names):
            return True
    return False


@kernel
def _colon(t, lo, hi, i, wanted, marks, flags):  # type: ignore[no-untyped-def]
    """A login in a URL, or the first colon, or the double one, of an IPv6 address."""
    if i + 8 < hi and t[i + 1] == 0x2F and t[i + 2] == 0x2F:
        parts = False
        for k in range(i + 3, min(hi, i + 200)):
            c = t[k]
            if c == 0x40:
                if parts:
                    _mark(marks, wanted, SECRET, i, i + 1)
                return
            if flags[c] & BLANK or c == 0x2F or c == 0x22 or c == 0x27 or c == 0x3C or c == 0x3E:
                return
            parts |= c == 0x3A
        return
    if i == lo or not flags[t[i - 1]] & HEX or i + 2 > hi:
        return
    first = i - 1
    while first > lo and i - first < 30 and (flags[t[first - 1]] & HEX or t[first - 1] == 0x3A):
        first -= 1
    end = i
    while end < hi and (flags[t[end]] & HEX or t[end] == 0x3A):
        end += 1
    if i + 1 < hi and t[i + 1] == 0x3A:
        head = first
        while flags[t[head]] & HEX:
            head += 1
        routed = t[first] == 0x32 or t[first] == 0x33 or t[first] | 32 == 0x66
        if (head - first == 4 and routed) or i - first >= 30:
            _mark(marks, wanted, IP, first, end)
    elif end - i >= 13 and i - first <= 4:
        colons = 0
        for k in range(i, min(end, i + 36)):
            colons += t[k] == 0x3A
        if colons >= 7:
            _mark(marks, wanted, IP, first, end)
