"""Measures of a text's words: how many, how long, which, and how much they repeat.

Gopher's quality and repetition measures (Rae et al. 2021, arXiv 2112.11446, appendix A.1.1), C4's
sentences and FineWeb's newlines per word, with the words of `words`.
"""

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tasks.data.filtering import alphabet, repetition
from tasks.data.filtering.alphabet import (
    LINE_BREAK,
    SYMBOL,
    Alive,
    Codes,
    Kinds,
    Scores,
    decode_text,
)
from tasks.data.filtering.repetition import measure
from tasks.data.filtering.words import (
    ALL_PUNCTUATION,
    ALL_SYMBOLS,
    ENDS_SENTENCE,
    STOP,
    STOP_WORDS,
    WITH_LETTER,
    WORD,
    Words,
    split,
)
from tasks.data.kernels import kernel
from tasks.data.kernels.buffers import Bytes, Offsets, text_buffer

COUNTS = (
    "words",
    "word_length",
    "hashes_per_word",
    "ellipses_per_word",
    "alphabetic_word_share",
    "stop_words",
    "newlines_per_word",
    "sentences",
)
REPETITIONS = (
    *(f"top_{n}gram_share" for n in repetition.TOP),
    *(f"repeated_{n}gram_share" for n in repetition.REPEATED),
)
NAMES = (*COUNTS, *REPETITIONS)
N_COUNTS = len(COUNTS)


class Room(NamedTuple):
    """Where a text and its words are laid out."""

    codes: Codes
    kinds: Kinds
    words: Words
    grams: repetition.Space


def score(texts: pa.Array, alive: Alive, wanted: Collection[str]) -> Scores:
    """`[documents, measures]`: counts, mean characters of a word, ratios to words, and characters
    in repeated n-grams as shares of the text's, which are left at 0 where none is wanted.
    """
    data, offsets = text_buffer(texts)
    out = np.zeros((len(texts), len(NAMES)))
    room = _room_for(int(np.diff(offsets).max(initial=1)))
    repeats = not set(wanted).isdisjoint(REPETITIONS)
    _score(data, offsets, alive, alphabet.table(), room, repeats, out)
    return out


def _room_for(size: int) -> Room:
    return Room(
        np.empty(size, np.uint32),
        np.empty(size, np.uint16),
        np.empty(size, WORD),
        repetition.space_for(size),
    )


@kernel
def _score(
    data: Bytes,
    offsets: Offsets,
    alive: Alive,
    table: Kinds,
    room: Room,
    repeats: bool,
    out: Scores,
) -> None:
    for k in range(len(offsets) - 1):
        if not alive[k]:
            continue
        n = decode_text(data, offsets[k], offsets[k + 1], table, room.codes, room.kinds)
        found = split(room.codes, room.kinds, n, room.words)
        _count(room.codes, room.kinds, n, room.words, found, out[k])
        if repeats:
            measure(room.words, found, room.grams, out[k, N_COUNTS:])
            out[k, N_COUNTS:] /= max(1, n)


@kernel
def _count(codes: Codes, kinds: Kinds, n: int, words: Words, n_words: int, out: Scores) -> None:
    proper = characters = alphabetic = stops = 0
    for k in range(n_words):
        kind = words[k].kind
        alphabetic += kind & WITH_LETTER
        stops |= kind >> STOP
        if not kind & ALL_SYMBOLS:
            proper += 1
            characters += words[k].end - words[k].start
    hashes = ellipses = newlines = dots = 0
    for at in range(n):
        if not kinds[at] & (SYMBOL | LINE_BREAK):
            dots = 0
            continue
        code = codes[at]
        hashes += code == ord("#")
        newlines += code == ord("\n")
        dots = dots + 1 if code == ord(".") else 0
        ellipses += code == ord("…") or dots == 3
        if dots == 3:
            dots = 0
    out[0] = proper
    out[1] = characters / max(1, proper)
    out[2] = hashes / max(1, n_words)
    out[3] = ellipses / max(1, n_words)
    out[4] = alphabetic / max(1, n_words)
    for k in range(len(STOP_WORDS)):
        out[5] += (stops >> k) & 1
    out[6] = newlines / max(1, n_words)
    out[7] = _sentences(codes, words, n_words)


@kernel
def _sentences(codes: Codes, words: Words, n_words: int) -> int:
    """Sentences of all lines: one begins with a line, and with the first word after a full stop
    and what punctuation follows it. White space other than one blank counts as a word here.
    """
    sentences, stopped, end = 0, False, 0
    for k in range(n_words):
        start, kind = words[k].start, words[k].kind
        wide = start - end > 1 or (start - end == 1 and codes[end] != ord(" "))
        begins = k == 0
        for at in range(end, start):
            begins = begins or codes[at] == ord("\n")
        sign = kind & (ALL_PUNCTUATION | ENDS_SENTENCE)
        if begins or (stopped and (wide or not sign)):
            sentences, stopped = sentences + 1, False
        if kind & ENDS_SENTENCE:
            stopped = True
        end = words[k].end
    return sentences
