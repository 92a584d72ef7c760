"""What the filters need to know of a character, as one table of bit sets, and text as code points.

OUTER are the signs that come off the front and the back of a word; SYMBOL and SENTENCE_END are
those that the Gopher and FineWeb filters of datatrove count as punctuation and a sentence's end.
"""

import unicodedata
from functools import cache

import numpy as np
import numpy.typing as npt

from tasks.data.kernels import characters, kernel
from tasks.data.kernels.buffers import Bytes
from tasks.data.kernels.characters import decode

Codes = npt.NDArray[np.uint32]
Kinds = npt.NDArray[np.uint16]
Alive = npt.NDArray[np.bool_]  # [documents], those that no filter has rejected so far
Scores = npt.NDArray[np.float64]  # [documents, measures]

(SPACE, LETTER, UPPER, DIGIT, OUTER, PUNCTUATION) = (1 << k for k in range(6))
(SENTENCE_END, SYMBOL, ALPHANUMERIC, UNPRINTABLE, LINE_BREAK) = (1 << k for k in range(6, 11))

NOT_OUTER = "/-@%\\."  # punctuation that stays with a word
# Terminal punctuation: the Unicode property Sentence_Terminal, written as ranges.
TERMINALS = (
    "21 2e 3f 589 61d-61f 6d4 700-702 7f9 837 839 83d 83e 964 965 104a 104b 1362 1367 1368 166e"
    " 1735 1736 17d4-17d6 17d9 17da 1803 1809 1944 1945 1aa8-1aab 1b5a 1b5b 1b5e 1b5f 1b7d 1b7e"
    " 1c3b 1c3c 1c7e 1c7f 203c 203d 2047-2049 2e2e 2e3c 2e53 2e54 3002 a4ff a60e a60f a6f3 a6f7"
    " a876 a877 a8ce a8cf a92f a9c8 a9c9 aa5d-aa5f aaf0 aaf1 abeb fe52 fe56 fe57 ff01 ff0e ff1f"
    " ff61 10a56 10a57 10f55-10f59 10f86-10f89 11047 11048 110be-110c1 11141-11143 111c5 111c6"
    " 111cd 111de 111df 11238 11239 1123b 1123c 112a9 1144b 1144c 115c2 115c3 115c9-115d7 11641"
    " 11642 1173c-1173e 11944 11946 11a42 11a43 11a9b 11a9c 11c41 11c42 11ef7 11ef8 11f43 11f44"
    " 16a6e 16a6f 16af5 16b37 16b38 16b44 16e98 1bc9f 1da88"
)
NOT_ASCII_SYMBOLS = "—”％１〈、━【」「，】；“《„’∶´．（–？！：～«〉》）。…►»"
LINE_BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"


@cache
def table() -> Kinds:
    """`[CODE_POINTS]` bits, made from Python's own tables and the signs above."""
    known = characters.kinds()
    bits = np.zeros(characters.CODE_POINTS, np.uint16)
    letter = known & characters.ALPHA > 0
    bits[letter] |= LETTER
    bits[letter & (known & characters.LOWER == 0)] |= UPPER
    bits[known & characters.SPACE > 0] |= SPACE
    bits[known & characters.WORD > 0] |= ALPHANUMERIC
    bits[ord("_")] &= ~np.uint16(ALPHANUMERIC)
    bits[known & (characters.PRINTABLE | characters.SPACE) == 0] |= UNPRINTABLE
    bits[[*range(0x1C, 0x20), 0x0B, 0xFFFD]] |= UNPRINTABLE
    bits[ord("0") : ord("9") + 1] |= DIGIT
    for code in range(0x20000):  # no sign of these categories lies above
        category = unicodedata.category(chr(code))
        bits[code] |= PUNCTUATION * (category[0] == "P")
        bits[code] |= OUTER * (category[0] == "P" or category in ("So", "Sc"))
    terminals = _codes_in(TERMINALS)
    symbols = [*range(9), *range(11, 32), *range(127, 160), *terminals]
    _mark(bits, "<>`", OUTER)
    bits[[ord(sign) for sign in NOT_OUTER]] &= ~np.uint16(OUTER)
    _mark(bits, LINE_BREAKS, LINE_BREAK)
    ascii_signs = "".join(c for c in map(chr, range(33, 127)) if not c.isalnum())
    _mark(bits, NOT_ASCII_SYMBOLS + ascii_signs, SYMBOL)
    bits[symbols] |= SYMBOL
    bits[terminals] |= SENTENCE_END
    return bits


def _mark(bits: Kinds, signs: str, kind: int) -> None:
    bits[[ord(sign) for sign in signs]] |= kind


def _codes_in(ranges: str) -> list[int]:
    bounds = [[int(end, 16) for end in part.split("-")] for part in ranges.split()]
    return [code for ends in bounds for code in range(ends[0], ends[-1] + 1)]


@kernel
def decode_text(data: Bytes, start: int, end: int, table: Kinds, codes: Codes, kinds: Kinds) -> int:
    """Write a text's code points and what they are to `codes` and `kinds`; how many there are."""
    n, at = 0, start
    while at < end:
        code = np.uint32(data[at])
        if code < 0x80:
            at += 1
        else:
            wide, at = decode(data, at)
            code = np.uint32(wide)
        codes[n] = code
        kinds[n] = table[code]
        n += 1
    return n
