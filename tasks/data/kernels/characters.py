"""What kind of character a code point is, as one table of bit sets, and its lower case as another.

The tables come from Python's `str` methods, so that a kernel and plain Python agree on every
character; they are made once and kept beside the compiled kernels.
"""

import os
import unicodedata
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cluster.home import cache_folder
from tasks.data.kernels import kernel
from tasks.data.kernels.buffers import Bytes

CODE_POINTS = 0x110000
# Thai and Lao, Myanmar, Khmer, Tai Le to Khmer symbols, Tai Tham, Tai Viet: alphabets, of which
# Unicode Standard Annex 14 (class SA) says that they part no words.
RUN_ON = ((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x1950, 0x19FF),
          (0x1A20, 0x1AAF), (0xAA80, 0xAADF))  # fmt: skip
KANA = (0x3040, 0x30FF)
ALPHA, DIGIT, SPACE, UPPER, LOWER, PRINTABLE, WORD, WIDE = (1 << k for k in range(8))


def kinds() -> npt.NDArray[np.uint8]:
    """`[CODE_POINTS]` bits. ALPHA, DIGIT, SPACE, UPPER, LOWER, PRINTABLE as `str.isalpha` and so on
    say; WORD: letters, numbers and `_`, the `\\w` of `re`; WIDE: written without spaces, each
    character a word (kana and Chinese characters).
    """
    return kept("kinds.npy", _kinds)


def word_kinds() -> npt.NDArray[np.uint8]:
    """`kinds`, with marks as part of words: vowel signs of Indic scripts, Hebrew points, accents
    that stand apart (Unicode Standard Annex 29, rule WB4: a mark never ends a word). Letters and
    marks of the scripts in `RUN_ON`, and all Chinese characters, are WIDE too.
    """
    return kept("word_kinds.npy", _word_kinds)


def lower_case() -> npt.NDArray[np.uint32]:
    """`[CODE_POINTS]` code points in lower case; where that is several, the character itself."""
    return kept("lower_case.npy", _lower_case)


def composing() -> npt.NDArray[np.uint8]:
    """`[CODE_POINTS]` 1 where NFC may change a text for having this character, else 0: the quick
    check of Unicode Standard Annex 15, with combining marks, whose order may be wrong.
    """
    return kept("composing.npy", _composing)


def folding() -> npt.NDArray[np.uint8]:
    """`[CODE_POINTS]` 1 where `kernels.folding` may change the words of a text, else 0."""
    return kept("folding.npy", _folding)


def is_unseen(character: str) -> bool:
    """Whether a character is a format character or selects a variant of the one before it."""
    selects = "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"
    return selects or unicodedata.category(character) == "Cf"


def ranges(chosen: npt.NDArray[np.bool_]) -> str:
    """Code points as a character class of `re` has them. One by one each of those beyond U+FFFF
    costs a comparison at every character of a text.
    """
    edges = np.flatnonzero(np.diff(chosen, prepend=False, append=False)).reshape(-1, 2)
    return "".join(f"\\U{first:08x}-\\U{end - 1:08x}" for first, end in edges.tolist())


@kernel
def decode(data: Bytes, at: int) -> tuple[int, int]:
    """The code point that begins at a byte of valid UTF-8, and the place of the next one."""
    first = int(data[at])
    if first < 0x80:
        return first, at + 1
    if first < 0xE0:
        return (first & 0x1F) << 6 | (data[at + 1] & 0x3F), at + 2
    if first < 0xF0:
        return (first & 0x0F) << 12 | (data[at + 1] & 0x3F) << 6 | (data[at + 2] & 0x3F), at + 3
    high = (first & 0x07) << 18 | (data[at + 1] & 0x3F) << 12
    return high | (data[at + 2] & 0x3F) << 6 | (data[at + 3] & 0x3F), at + 4


def _kinds() -> npt.NDArray[np.uint8]:
    table = np.zeros(CODE_POINTS, np.uint8)
    tests = (str.isalpha, str.isdigit, str.isspace, str.isupper, str.islower, str.isprintable)
    for code in range(CODE_POINTS):
        character = chr(code)
        bits = sum(test(character) << k for k, test in enumerate(tests))
        word = character.isalnum() or character == "_"
        wide = KANA[0] <= code <= KANA[1] or 0x3400 <= code <= 0x9FFF
        table[code] = bits | word * WORD | wide * WIDE
    return table


def _word_kinds() -> npt.NDArray[np.uint8]:
    marks = [code for code in range(CODE_POINTS) if unicodedata.category(chr(code))[0] == "M"]
    table = _kinds()
    table[marks] |= WORD
    for first, last in RUN_ON:
        table[first : last + 1] |= (table[first : last + 1] & WORD) // WORD * WIDE
    table[0x20000:0x40000] |= WIDE  # the Chinese characters that are rare
    return table


def _folding() -> npt.NDArray[np.uint8]:
    """What NFC may change, and every format character and compatibility variant that is part of a
    word; a no-break space or an ellipsis is none before and after.
    """
    table = _composing()
    for code in range(CODE_POINTS):
        character = chr(code)
        if is_unseen(character):
            table[code] = 1
        elif (folded := unicodedata.normalize("NFKC", character)) != character:
            table[code] |= any(c.isalnum() for c in character + folded)
    return table


def _lower_case() -> npt.NDArray[np.uint32]:
    lowered = (chr(code).lower() for code in range(CODE_POINTS))
    codes = (ord(c) if len(c) == 1 else k for k, c in enumerate(lowered))
    return np.fromiter(codes, np.uint32, CODE_POINTS)


def _composing() -> npt.NDArray[np.uint8]:
    table = np.zeros(CODE_POINTS, np.uint8)
    table[0x1161:0x1176] = table[0x11A8:0x11C3] = 1  # vowels and final consonants of Hangul
    for code in range(CODE_POINTS):
        character = chr(code)
        if unicodedata.combining(character) or not unicodedata.is_normalized("NFC", character):
            table[code] = 1
        pair = unicodedata.decomposition(character).split()
        if len(pair) == 2 and not pair[0].startswith("<"):
            # The second of two characters that NFC makes one may be no combining mark itself.
            table[int(pair[1], 16)] = 1
    return table


@cache
def kept(name: str, make: Callable[[], npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """A table as this version of `make` makes it, made once and kept beside the kernels."""
    from tasks.data.kernels.caching import source_hash

    name = f"{unicodedata.unidata_version}-{source_hash(make)}-{name}"
    path: Path = cache_folder("kernels") / name
    if not path.exists():
        # Under a name of this process first: another may be about to write or read the same table.
        partial = path.with_name(f".{os.getpid()}-{name}")
        with partial.open("wb") as file:
            np.save(file, make())
        partial.replace(path)
    return np.load(path)
