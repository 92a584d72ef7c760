"""Passages as spans: runs of so many words, wherever they begin and over the ends of lines.

What Lee et al. (2021, "Deduplicating Training Data Makes Language Models Better", ExactSubstr) find
with a suffix array: every word of a run of `words` words that is there before, in an earlier
document or earlier in the same one. A word is what stands between white space, and each Chinese or
Japanese character begins one; runs are equal up to white space.

1. marks      of all windows of words // 2 words those that winnowing selects (Schleimer et al.
              2003, section 3): every run of `words` words has one, equal runs have one in common.
              Of 50 words that is one window in 13
2. passages   the runs of `words` words round a mark that is there again: with these few hashes the
              repeated runs are found exactly; a longer passage is many runs that overlap
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tasks.data.deduplication.spans import Repeats, Spans
from tasks.data.kernels import kernel
from tasks.data.kernels.buffers import Bytes, Offsets, text_buffer
from tasks.data.kernels.characters import SPACE, WIDE, decode, word_kinds
from tasks.data.kernels.words import FACTOR, OTHER_FACTOR, SEED, Hashes, Kinds, mix

PLACE_BITS = 32  # of the byte in the text; the number of the text is above


@dataclass(frozen=True)
class Marks:
    """Finds the windows that stand for all runs of `words` words."""

    words: int

    def __call__(self, texts: pa.Array, first: int) -> Spans:
        """The selected windows of these texts."""
        data, offsets = text_buffer(texts)
        out = _room(offsets)
        count = _select(data, offsets, word_kinds(), self.words, _Words.of(offsets), out)
        return _placed(out, count, offsets, first)


@dataclass(frozen=True)
class Passages:
    """Finds the runs of `words` words that have a repeated mark."""

    words: int
    marks: Repeats

    def __call__(self, texts: pa.Array, first: int) -> Spans:
        """The runs of these texts, each up to the word that follows."""
        return runs(texts, first, self.words, self.marks.all(texts, first))


def runs(texts: pa.Array, first: int, words: int, marks: Spans) -> Spans:
    """The runs of so many words in which one of the marks begins."""
    data, offsets = text_buffer(texts)
    out = _room(offsets)
    where = marks.texts, marks.begins
    count = _run(data, offsets, word_kinds(), words, *where, _Words.of(offsets), out)
    return _placed(out, count, offsets, first)


class _Words(NamedTuple):
    """Where each word of a text starts, and two hashes of all words before it."""

    starts: Offsets
    ones: Hashes
    twos: Hashes

    @classmethod
    def of(cls, offsets: Offsets) -> "_Words":
        """Room for the words of the longest text."""
        room = int(np.diff(offsets).max(initial=0)) // 2 + 2
        return cls(np.empty(room, np.int64), np.empty(room, np.uint64), np.empty(room, np.uint64))


def _room(offsets: Offsets) -> Spans:
    """Room for a span at every word of all texts; takes memory as it fills."""
    room = int(offsets[-1] - offsets[0]) // 2 + len(offsets)
    kinds = [np.uint64] * 2 + [np.int64] * 4
    return Spans._make(np.empty(room, kind) for kind in kinds)


def _placed(out: Spans, count: int, offsets: Offsets, first: int) -> Spans:
    """The first `count` spans, copied: the rest of their room is given back."""
    spans = Spans._make(column[:count].copy() for column in out)
    places = (first + spans.texts << PLACE_BITS) + spans.begins - offsets[spans.texts]
    return spans._replace(places=places)


@kernel
def _select(
    data: Bytes, offsets: Offsets, kinds: Kinds, words: int, found: _Words, out: Spans
) -> int:
    """Write the windows with the least hash of each run, the last of equal ones; their number."""
    size = words // 2
    width = words - size  # windows of a run, less one
    starts, ones, twos = found.starts, found.ones, found.twos
    power, other = _power(FACTOR, size), _power(OTHER_FACTOR, size)
    count = 0
    for text in range(len(offsets) - 1):
        total = _prefixes(data, offsets[text], offsets[text + 1], kinds, found)
        best, least = -1, SEED
        for last in range(width, total - size + 1):
            value = mix(ones[last + size] - ones[last] * power)
            inside = best >= last - width
            if inside and value > least:
                continue  # the run before has the same
            best, least = last, value  # of equal ones the last, so that overlapping runs have two
            if not inside:
                for window in range(last - 1, last - width - 1, -1):
                    value = mix(ones[window + size] - ones[window] * power)
                    if value < least:
                        best, least = window, value
            out.low[count], out.texts[count] = least, text
            out.high[count] = mix(twos[best + size] - twos[best] * other)
            out.begins[count], out.ends[count] = starts[best], starts[best + size]
            count += 1
    return count


@kernel
def _run(
    data: Bytes,
    offsets: Offsets,
    kinds: Kinds,
    words: int,
    mark_texts: Offsets,
    mark_begins: Offsets,
    found: _Words,
    out: Spans,
) -> int:
    """Write the runs with a mark; their number. Texts without one are not looked at."""
    starts, ones, twos = found.starts, found.ones, found.twos
    power, other = _power(FACTOR, words), _power(OTHER_FACTOR, words)
    size = words // 2
    count, mark = 0, 0
    while mark < len(mark_texts):
        text, latest = mark_texts[mark], np.int64(-1)
        total = _prefixes(data, offsets[text], offsets[text + 1], kinds, found)
        for word in range(total - words + 1):
            while (
                mark < len(mark_texts)
                and mark_texts[mark] == text
                and mark_begins[mark] <= starts[word + words - size]
            ):
                latest = mark_begins[mark]
                mark += 1
            if latest >= starts[word]:
                out.low[count] = mix(ones[word + words] - ones[word] * power)
                out.high[count] = mix(twos[word + words] - twos[word] * other)
                out.texts[count] = text
                out.begins[count], out.ends[count] = starts[word], starts[word + words]
                count += 1
        while mark < len(mark_texts) and mark_texts[mark] == text:
            mark += 1
    return count


@kernel
def _power(factor: np.uint64, exponent: int) -> np.uint64:
    power = np.uint64(1)
    for _ in range(exponent):
        power *= factor
    return power


@kernel
def _prefixes(data: Bytes, at: int, end: int, kinds: Kinds, found: _Words) -> int:
    """Write the words of a text, and an entry more for its end; their number."""
    starts, ones, twos = found.starts, found.ones, found.twos
    count, inside = 0, False
    one, two = SEED, SEED
    ones[0], twos[0] = np.uint64(0), np.uint64(0)
    while at < end:
        before, code = at, int(data[at])
        if code < 0x80:
            at += 1
        else:
            code, at = decode(data, at)
        space, wide = kinds[code] & SPACE != 0, kinds[code] & WIDE != 0
        if inside and (space or wide):
            ones[count] = ones[count - 1] * FACTOR + mix(one)
            twos[count] = twos[count - 1] * OTHER_FACTOR + mix(two)
            inside = False
        if space:
            continue
        if not inside:
            starts[count] = before
            count += 1
            inside, one, two = True, SEED, SEED
        one = (one ^ np.uint64(code)) * FACTOR
        two = (two ^ np.uint64(code)) * OTHER_FACTOR
    if inside:
        ones[count] = ones[count - 1] * FACTOR + mix(one)
        twos[count] = twos[count - 1] * OTHER_FACTOR + mix(two)
    starts[count] = end
    return count
