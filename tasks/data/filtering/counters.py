"""Measures of a text's characters: how many of a kind, runs without white space or newline."""

from collections.abc import Collection

import numpy as np
import pyarrow as pa

from tasks.data.filtering.alphabet import (
    ALPHANUMERIC,
    SPACE,
    UNPRINTABLE,
    Alive,
    Kinds,
    Scores,
    table,
)
from tasks.data.kernels import kernel
from tasks.data.kernels.buffers import Bytes, Offsets, text_buffer
from tasks.data.kernels.characters import decode
from tasks.data.kernels.phrases import Phrases, phrase_at, phrases

NAMES = (
    "stripped_length",
    "alphanumeric_share",
    "unprintable_share",
    "longest_run",
    "mean_run",
    "longest_line",
    "mean_line",
    "lorem_ipsum",
    "curly_brackets",
)
SHORTEST_RUN = 200  # shorter ones are words, and not measured


def score(texts: pa.Array, alive: Alive, wanted: Collection[str]) -> Scores:
    """`[documents, measures]`: lengths in characters, shares from 0 to 1, occurrences."""
    data, offsets = text_buffer(texts)
    out = np.zeros((len(texts), len(NAMES)))
    _score(data, offsets, alive, table(), phrases(("lorem ipsum",)), out)
    return out


@kernel
def _score(
    data: Bytes,
    offsets: Offsets,
    alive: Alive,
    table: Kinds,
    lorem: Phrases,
    out: Scores,
) -> None:
    for k in range(len(offsets) - 1):
        if alive[k]:
            _score_one(data, offsets[k], offsets[k + 1], table, lorem, out[k])


@kernel
def _score_one(
    data: Bytes, start: int, end: int, table: Kinds, lorem: Phrases, out: Scores
) -> None:
    length = dense = alphanumeric = unprintable = 0
    first_dense = last_dense = -1
    run = runs = longest_run = line = longest_line = newlines = 0
    ascii_run = True
    at = start
    while at < end:
        byte = data[at]
        if byte < 0x80:
            code, behind = int(byte), at + 1
            out[7] += phrase_at(data, at, end, lorem) >= 0
            out[8] += byte == ord("{")
        else:
            code, behind = decode(data, at)
            ascii_run = False
        kind = table[code]
        unprintable += kind & UNPRINTABLE > 0
        if kind & SPACE:
            run, ascii_run = 0, True
        else:
            dense += 1
            alphanumeric += kind & ALPHANUMERIC > 0
            first_dense = length if first_dense < 0 else first_dense
            last_dense = length
            runs += run == 0
            run += 1
            if ascii_run and run > longest_run:
                longest_run = run
        if code == ord("\n"):
            longest_line = max(longest_line, line)
            newlines, line = newlines + 1, 0
        else:
            line += 1
        length, at = length + 1, behind
    out[0] = last_dense - first_dense + 1 if dense else 0
    out[1] = alphanumeric / max(1, dense)
    out[2] = unprintable / max(1, length)
    out[3] = longest_run if longest_run > SHORTEST_RUN else 0
    out[4] = dense / max(1, runs)
    out[5] = max(longest_line, line)
    out[6] = length / (newlines + 1)
