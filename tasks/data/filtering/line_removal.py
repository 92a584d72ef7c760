"""Lines taken out of a text, as C4 does it (Raffel et al. 2020, arXiv 1910.10683, section 2.2).

Lines are stripped, marks of citations are cut out of them, and those that break a line rule go;
what is left is joined by newlines. The details of the rules are those of datatrove's C4 filter.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tasks.data.filtering import alphabet
from tasks.data.filtering.alphabet import LINE_BREAK, SPACE, Alive, Kinds
from tasks.data.filtering.rules import LINE_RULES
from tasks.data.kernels import kernel
from tasks.data.kernels.buffers import Bytes, Offsets, text_array, text_buffer
from tasks.data.kernels.characters import decode
from tasks.data.kernels.phrases import Phrases, phrase_at, phrases

LONG_WORD, UNPUNCTUATED, FEW_WORDS, JAVASCRIPT, POLICY, CITATION = range(6)
PHRASES = (
    "javascript",
    "terms of use",
    "privacy policy",
    "cookie policy",
    "uses cookies",
    "use of cookies",
    "use cookies",
)
CITATIONS = ("[edit]", "[citation needed]")
KEPT = -1


class Rulebook(NamedTuple):
    """What the kernel looks up: kinds of characters, phrases, citation marks, limits by rule."""

    table: Kinds
    phrases: Phrases
    citations: Phrases
    limits: npt.NDArray[np.float64]
    strip: bool


def remove_lines(
    texts: pa.Array, alive: Alive, limits: Mapping[str, float], *, strip: bool
) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """The texts without the lines that break `limits`, and how many each rule took: `[documents,
    rules]` in the order of `LINE_RULES`. Texts that are not alive become empty. Without `strip`
    lines keep the white space around them, as where a mark was cut out before.
    """
    data, offsets = text_buffer(texts)
    out = np.empty(offsets[-1] - offsets[0], np.uint8)
    ends = np.zeros(len(texts) + 1, np.int64)
    removed = np.zeros((len(texts), len(LINE_RULES)), np.int64)
    bounds = np.array([limits.get(name, np.nan) for name in LINE_RULES])
    book = Rulebook(alphabet.table(), phrases(PHRASES), phrases(CITATIONS), bounds, strip)
    _remove(data, offsets, alive, book, out, ends, removed)
    return text_array(out[: ends[-1]], ends), removed


@kernel
def _remove(
    data: Bytes,
    offsets: Offsets,
    alive: Alive,
    book: Rulebook,
    out: Bytes,
    ends: Offsets,
    removed: npt.NDArray[np.int64],
) -> None:
    filled = 0
    for k in range(len(offsets) - 1):
        begin, at = filled, offsets[k]
        while alive[k] and at < offsets[k + 1]:
            filled, at = _line(data, at, offsets[k + 1], book, out, begin, filled, removed[k])
        while filled > begin and out[filled - 1] == ord(" "):
            filled -= 1
        ends[k + 1] = filled


@kernel
def _line(
    data: Bytes,
    at: int,
    end: int,
    book: Rulebook,
    out: Bytes,
    begin: int,
    filled: int,
    removed: npt.NDArray[np.int64],
) -> tuple[int, int]:
    """One line: where the output ends after it, and where the next line begins.

    `begin` is where the document's output begins, `filled` where it ends before the line.
    """
    start, low, high = at, -1, -1  # of what is written on it
    words = letters = longest = 0
    phrase, bracket = -1, False
    behind = at
    while at < end:
        byte = data[at]
        if byte < 0x80:
            kind, behind = book.table[byte], at + 1
            bracket = bracket or byte == ord("[")
            found = phrase_at(data, at, end, book.phrases)
            phrase = found if found >= 0 and phrase != 0 else phrase
        else:
            code, behind = decode(data, at)
            kind = book.table[code]
        if kind & LINE_BREAK:
            break
        if kind & SPACE:
            letters = 0
        else:
            low = at if low < 0 else low
            high = behind
            words += letters == 0
            letters += 1
            longest = max(longest, letters)
        at = behind
    crlf = at + 1 < end and data[at] == ord("\r") and data[at + 1] == ord("\n")
    following = behind + 1 if crlf else behind
    if not book.strip:
        low, high = start, at
    text = filled + 1 if filled > begin else filled
    new = _copy(data, max(low, 0), high, bracket, book, out, text, removed)
    rule = _broken(out, text, new, words, longest, phrase, book.limits)
    if rule == KEPT:
        if text > filled:
            out[filled] = ord("\n")
        return new, following
    removed[rule] += words > 0
    return filled, following


@kernel
def _copy(
    data: Bytes,
    low: int,
    high: int,
    bracket: bool,
    book: Rulebook,
    out: Bytes,
    new: int,
    removed: npt.NDArray[np.int64],
) -> int:
    """Copy a line, without marks of citations; where the output ends."""
    bracket = bracket and book.limits[CITATION] == 0
    while low < high:
        behind = _behind_citation(data, low, high, book.citations) if bracket else low
        if behind > low:
            removed[CITATION] += 1
            low = behind
        else:
            out[new] = data[low]
            low, new = low + 1, new + 1
    return new


@kernel
def _behind_citation(data: Bytes, low: int, high: int, citations: Phrases) -> int:
    """Where `[12]`, `[]`, `[edit]` or `[citation needed]` ends that begins at `low`, else `low`."""
    if data[low] != ord("["):
        return low
    at = low + 1
    while at < high and ord("0") <= data[at] <= ord("9"):
        at += 1
    if at < high and data[at] == ord("]"):
        return at + 1
    mark = phrase_at(data, low, high, citations)
    return low + citations.length[mark] if mark >= 0 else low


@kernel
def _broken(
    out: Bytes,
    low: int,
    high: int,
    words: int,
    longest: int,
    phrase: int,
    bounds: npt.NDArray[np.float64],
) -> int:
    """The first line rule that a line breaks."""
    if longest > bounds[LONG_WORD]:
        return LONG_WORD
    if bounds[UNPUNCTUATED] == 0 and not _is_punctuated(out, low, high):
        return UNPUNCTUATED
    if words < bounds[FEW_WORDS]:
        return FEW_WORDS
    if phrase == 0 and bounds[JAVASCRIPT] == 0:
        return JAVASCRIPT
    return POLICY if phrase > 0 and bounds[POLICY] == 0 else KEPT


@kernel
def _is_punctuated(out: Bytes, low: int, high: int) -> bool:
    """Whether a line ends as a sentence does, and does not trail off."""
    if low == high:
        return False
    last = out[high - 1]
    if last == ord("."):
        return not (high - low >= 3 and out[high - 2] == ord(".") and out[high - 3] == ord("."))
    return last == ord("?") or last == ord("!") or last == ord('"') or last == ord("'")
