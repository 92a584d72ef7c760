"""Words of a text and runs of consecutive words, as 64-bit hashes straight from its UTF-8 bytes.

A word is a run of letters, digits, underscores and, by `word_kinds`, marks, in lower case; each
character of a script written without spaces is a word of its own. A shingle is so many consecutive
words.
"""

import re
from functools import cache

import numpy as np
import numpy.typing as npt

from tasks.data.kernels import kernel
from tasks.data.kernels.buffers import Bytes
from tasks.data.kernels.characters import KANA, RUN_ON, WIDE, WORD, decode, ranges, word_kinds

Hashes = npt.NDArray[np.uint64]
Kinds = npt.NDArray[np.uint8]
LowerCase = npt.NDArray[np.uint32]
SEED = np.uint64(0xCBF29CE484222325)
FACTOR = np.uint64(0x9E3779B97F4A7C15)
OTHER_FACTOR = np.uint64(0xC2B2AE3D27D4EB4F)


@cache
def word_pattern() -> re.Pattern[str]:
    """The words that `hash_words` hashes, in a text."""
    table = word_kinds()
    wide = table & WIDE > 0
    alone, run = ranges(wide), ranges(~wide & (table & WORD > 0))
    return re.compile(f"[{alone}]|[{run}]+")


def letters_each(text: str) -> int:
    """How many characters that are words of their own make about one word, by the script of most:
    1 of Chinese ones, 2 kana, 3 of an alphabet that parts no words, as Thai.
    """
    words = len(word_pattern().findall(text))
    if 2 * sum(a <= ord(c) <= b for c in text for a, b in RUN_ON) > words:
        return 3
    return 2 if 2 * sum(KANA[0] <= ord(c) <= KANA[1] for c in text) > words else 1


@kernel
def mix(value: np.uint64) -> np.uint64:
    """The finaliser of SplitMix64: every bit of the result depends on every bit of the value."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@kernel
def hash_words(
    data: Bytes, start: int, end: int, kinds: Kinds, lower: LowerCase, out: Hashes
) -> int:
    """Write the hashes of the words of `data[start:end]` in order to `out`; their number.

    `out` needs room for (end - start) // 2 + 2. The tables are those of `characters`.
    """
    count, at = 0, start
    value, inside = SEED, 0
    while at < end:
        code = int(data[at])
        if code < 0x80:
            at += 1
        else:
            code, at = decode(data, at)
        kind = kinds[code]
        if kind & WIDE:
            # The word before, if one is open; then this character, in its place or behind it.
            out[count] = value
            out[count + inside] = (SEED ^ np.uint64(code)) * FACTOR
            count += inside + 1
            value, inside = SEED, 0
        else:  # without a branch: where words end cannot be foretold
            letter = int(kind // WORD) & 1
            # Written in any case: `count` goes on only where a word has ended.
            out[count] = value
            count += inside & (1 - letter)
            # All bits set inside a word, none outside: it picks the hash or the seed.
            keep = np.uint64(0) - np.uint64(letter)
            value = ((value ^ np.uint64(lower[code])) * FACTOR & keep) | (SEED & ~keep)
            inside = letter
    if inside:
        out[count] = value
        count += 1
    for j in range(count):
        out[j] = mix(out[j])
    return count


@kernel
def hash_shingles(words: Hashes, count: int, words_each: int) -> int:
    """Replace the first `count` word hashes by those of the shingles that begin there.

    Returns how many there are. Where there are fewer words than a shingle has, all are one.
    """
    if count == 0:
        return 0
    length = min(words_each, count)
    total, power = np.uint64(0), np.uint64(1)
    for j in range(length):
        total = total * FACTOR + words[j]
        power = power * FACTOR
    shingles = count - length + 1
    for j in range(shingles):
        # Kept, as its place is overwritten and it still has to leave the sum.
        first = words[j]
        # Mixed: the low bits of a sum of products depend on nothing but the low bits of its words.
        words[j] = mix(total)
        if j + length < count:
            total = total * FACTOR + words[j + length] - first * power
    return shingles
