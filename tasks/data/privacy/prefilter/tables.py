"""What the pass looks bytes and words up in."""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tasks.data.kernels import kernel
from tasks.data.kernels.buffers import Offsets
from tasks.data.privacy import credentials, phones
from tasks.data.privacy.accounts import IBAN_LENGTHS
from tasks.data.privacy.obfuscation import table

# What the pass stops at; it runs over all other bytes without a look.
DIGIT, AT, COLON, EQUALS, BRACKET, DOT, BEGIN, AMPERSAND, FOREIGN = range(1, 10)
STOPS = {"@": AT, ":": COLON, "=": EQUALS, "d": DOT, "D": DOT, "B": BEGIN, "&": AMPERSAND}
STOPS |= dict.fromkeys("([{<", BRACKET) | dict.fromkeys("0123456789", DIGIT)
# Sets of bytes, a bit each beside the stop: of words, of words or beyond ASCII, of the part before
# an "@", of hexadecimal numbers, of values, white space.
STOP_BITS = 15
WORD, WORDISH, LOCAL, HEX, VALUE, BLANK = (1 << k for k in range(4, 10))
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
        prefixes[triple(*prefix.encode())] = True
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
def triple(a: int, b: int, c: int) -> int:
    """Where three bytes of seven bits are looked up."""
    return (a & 127) << 14 | (b & 127) << 7 | c & 127
