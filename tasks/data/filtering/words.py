"""Words of a text by a short rule, near to what spaCy's English tokenizer cuts.

White space parts a text into chunks. Signs come off the front and the back of a chunk, each a word
of its own, a run of full stops as one; a stop stays with an initial (`U.S.`) and a few short forms.
What is left is cut at signs between letters (`well-known`, `end.Next`), but not behind `://`, and
before an apostrophe that one or two letters follow (`it's`).

Measured (benchmarks/filtering.py): the verdict of the web filters is datatrove's, which has spaCy's
words, on 99.5 % of 2,155 natural pages; spaCy's own rules and exceptions would be three times as
much code. It is compiled since the filters' time is spent here: datatrove, with a Python object a
word, takes 160 times the CPU time for filters and redaction.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from tasks.data.filtering.alphabet import (
    ALPHANUMERIC,
    DIGIT,
    LETTER,
    OUTER,
    PUNCTUATION,
    SENTENCE_END,
    SPACE,
    SYMBOL,
    UPPER,
    Codes,
    Kinds,
)
from tasks.data.kernels import kernel
from tasks.data.kernels.words import FACTOR, SEED

# What a word is, as bits; from `STOP` on, which of the eight stop words.
WITH_LETTER, ALL_SYMBOLS, ALL_PUNCTUATION, ENDS_SENTENCE = (1 << k for k in range(4))
STOP = 4
STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
SHORT_FORMS = ("Mr", "Mrs", "Ms", "Dr", "St", "Jr", "Inc", "Ltd", "Co", "vs")  # keep their stop
LONGEST_STOP_WORD, LONGEST_SHORT_FORM = 4, 3
# Where a word begins and ends, in characters, its hash, and what it is.
WORD = np.dtype(
    [("start", np.int32), ("end", np.int32), ("hash", np.uint64), ("kind", np.uint16)], align=True
)
Words = npt.NDArray[Any]


def _hashes(words: tuple[str, ...]) -> npt.NDArray[np.uint64]:
    found = []
    for word in words:
        hash = int(SEED)
        for character in word:
            # As `hash_of` does it, but Python's numbers do not wrap around by themselves.
            hash = (hash ^ ord(character)) * int(FACTOR) % (1 << 64)
        found.append(hash)
    return np.array(found, np.uint64)


STOP_HASHES, SHORT_HASHES = _hashes(STOP_WORDS), _hashes(SHORT_FORMS)


@kernel
def split(codes: Codes, kinds: Kinds, n: int, words: Words) -> int:
    """Write the words of `codes[:n]` to `words`; how many there are."""
    count, at = 0, 0
    while at < n:
        start = at
        while at < n and not kinds[at] & SPACE:
            at += 1
        count = split_chunk(codes, kinds, start, at, words, count)
        at += 1
    return count


@kernel
def split_chunk(codes: Codes, kinds: Kinds, low: int, high: int, words: Words, count: int) -> int:
    """Write the words of a chunk without white space."""
    while low < high and kinds[low] & OUTER:
        count = add(codes, kinds, low, low + 1, words, count)
        low += 1
    end, size = high, 1
    while end > low and size:
        size = sign_behind(codes, kinds, low, end)
        end -= size
    # From the second character on: a sign parts what is on both of its sides.
    start, at = low, low + 1
    while at < end:
        size = 0 if kinds[at] & ALPHANUMERIC else sign_within(codes, kinds, at, end)
        if size or is_clitic(codes, kinds, at, end):
            count = add(codes, kinds, start, at, words, count)
            start = at
        if size:
            count = add(codes, kinds, at, at + size, words, count)
            start = at + size
        slashes = at + 2 < end and codes[at + 1] == codes[at + 2] == ord("/")
        at = end if codes[at] == ord(":") and slashes else at + max(1, size)
    count = add(codes, kinds, start, end, words, count)
    # What came off the back, from left to right: words are written in their order.
    while end < high:
        size = run(codes, end, high) if codes[end] == ord(".") else 1
        count = add(codes, kinds, end, end + size, words, count)
        end += size
    return count


@kernel
def run(codes: Codes, at: int, end: int) -> int:
    """How often the sign at `at` stands there."""
    behind = at + 1
    while behind < end and codes[behind] == codes[at]:
        behind += 1
    return behind - at


@kernel
def sign_behind(codes: Codes, kinds: Kinds, low: int, end: int) -> int:
    """Characters of the sign that comes off the back, 0 for none."""
    last = end - 1
    if codes[last] != ord("."):
        share = codes[last] == ord("%") and last > low and kinds[last - 1] & DIGIT
        return 1 if kinds[last] & OUTER or share else 0
    while last > low and codes[last - 1] == ord("."):
        last -= 1
    if end - last > 1 or last == low:
        return end - last
    if kinds[last - 1] & LETTER and (last - 1 == low or codes[last - 2] == ord(".")):
        return 0
    if last - low <= LONGEST_SHORT_FORM:
        hash = hash_of(codes, low, last)
        for k in range(len(SHORT_HASHES)):
            if SHORT_HASHES[k] == hash:
                return 0
    return 1


@kernel
def sign_within(codes: Codes, kinds: Kinds, at: int, end: int) -> int:
    """Characters of the sign at `at` that parts what is around it, 0 where it does not."""
    code, size, left = codes[at], run(codes, at, end), kinds[at - 1]
    if code == ord("…") or (code == ord(".") and size > 1):
        return size
    if at + size == end:
        return 0
    right = kinds[at + size]
    if code == ord("."):
        return 1 if left & LETTER and not left & UPPER and right & UPPER else 0
    if code == ord("-") and left & right & DIGIT:
        return size
    if code == ord(","):
        return size if left & right & LETTER else 0
    parts = code == ord("/") or code == ord("-") or code == ord("–") or code == ord("—")
    parts = parts or code == ord(":") or code == ord("=") or code == ord("~")
    parts = parts or code == ord("<") or code == ord(">")
    return size if parts and left & ALPHANUMERIC and right & LETTER else 0


@kernel
def is_clitic(codes: Codes, kinds: Kinds, at: int, end: int) -> bool:
    """Whether an apostrophe stands here between letters, one or two of which follow."""
    apostrophe = codes[at] == ord("'") or codes[at] == ord("’")
    return bool(apostrophe and 2 <= end - at <= 3 and kinds[at - 1] & kinds[at + 1] & LETTER)


@kernel
def hash_of(codes: Codes, low: int, high: int) -> np.uint64:
    """The hash of a word."""
    hash = SEED
    for at in range(low, high):
        hash = (hash ^ np.uint64(codes[at])) * FACTOR
    return hash


@kernel
def add(codes: Codes, kinds: Kinds, low: int, high: int, words: Words, count: int) -> int:
    """Write one word, unless it has no character; how many there are then."""
    if low >= high:
        return count
    any_kind, every_kind = 0, 0xFFFF
    for at in range(low, high):
        any_kind |= kinds[at]
        every_kind &= kinds[at]
    hash = hash_of(codes, low, high)
    kind = WITH_LETTER if any_kind & LETTER else 0
    kind |= ALL_SYMBOLS if every_kind & SYMBOL else 0
    kind |= ALL_PUNCTUATION if every_kind & PUNCTUATION else 0
    kind |= ENDS_SENTENCE if every_kind & SENTENCE_END and high - low == 1 else 0
    if kind == WITH_LETTER and high - low <= LONGEST_STOP_WORD:
        for k in range(len(STOP_HASHES)):
            kind |= (STOP_HASHES[k] == hash) << (STOP + k)
    word = words[count]
    word.start, word.end, word.hash, word.kind = low, high, hash, kind
    return count + 1
