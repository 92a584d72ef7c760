"""Measures of a text's lines and paragraphs: how many repeat, how they begin and end.

Gopher's are shares of the parts between newlines, empty ones at the ends included; FineWeb's are
shares of the lines with something on them (Penedo et al. 2024, arXiv 2406.17557, section 3.5).
"""

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tasks.data.filtering import alphabet
from tasks.data.filtering.alphabet import (
    LINE_BREAK,
    SENTENCE_END,
    SPACE,
    Alive,
    Codes,
    Kinds,
    Scores,
    decode_text,
)
from tasks.data.kernels import kernel
from tasks.data.kernels.buffers import Bytes, Offsets, text_buffer
from tasks.data.kernels.words import FACTOR, SEED

NAMES = (
    "repeated_paragraph_share",
    "repeated_paragraph_chars",
    "repeated_line_share",
    "repeated_line_chars",
    "bullet_lines",
    "ellipsis_lines",
    "punctuated_lines",
    "short_lines",
    "repeated_written_chars",
)
SHORT_LINE = 30


class Parts(NamedTuple):
    """Lines or paragraphs: their bounds, their hash, and a table that finds equal ones."""

    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    hash: npt.NDArray[np.uint64]
    seen: npt.NDArray[np.uint64]


def score(texts: pa.Array, alive: Alive, wanted: Collection[str]) -> Scores:
    """`[documents, measures]`, shares from 0 to 1."""
    data, offsets = text_buffer(texts)
    out = np.zeros((len(texts), len(NAMES)))
    _score(data, offsets, alive, alphabet.table(), out)
    return out


@kernel
def _score(
    data: Bytes,
    offsets: Offsets,
    alive: Alive,
    table: Kinds,
    out: Scores,
) -> None:
    codes, kinds = np.empty(0, np.uint32), np.empty(0, np.uint16)
    parts = parts_for(1)
    for k in range(len(offsets) - 1):
        if not alive[k] or offsets[k] == offsets[k + 1]:
            continue
        size = offsets[k + 1] - offsets[k]
        if size > len(codes):
            codes, kinds = np.empty(2 * size, np.uint32), np.empty(2 * size, np.uint16)
        n = decode_text(data, offsets[k], offsets[k + 1], table, codes, kinds)
        newlines = 0
        for i in range(n):
            newlines += codes[i] == ord("\n")
        if newlines + 2 > len(parts.start):
            parts = parts_for(2 * newlines + 2)
        _score_paragraphs(codes, kinds, n, parts, out[k])
        _score_lines(codes, kinds, n, newlines, parts, out[k])
        _score_ends(codes, kinds, n, out[k])


@kernel
def parts_for(count: int) -> Parts:
    """Room for so many parts."""
    slots = 4
    while slots < 2 * count:
        slots *= 2
    return Parts(
        np.empty(count, np.int64),
        np.empty(count, np.int64),
        np.empty(count, np.uint64),
        np.empty(slots, np.uint64),
    )


@kernel
def _score_paragraphs(codes: Codes, kinds: Kinds, n: int, parts: Parts, out: Scores) -> None:
    low, high = 0, n
    while low < high and kinds[low] & SPACE:
        low += 1
    while high > low and kinds[high - 1] & SPACE:
        high -= 1
    count = _part(codes, low, high, 2, parts)
    again, characters, _ = _repeated(kinds, count, parts)
    out[0], out[1] = again / count, characters / n


@kernel
def _score_lines(
    codes: Codes, kinds: Kinds, n: int, newlines: int, parts: Parts, out: Scores
) -> None:
    count = _part(codes, 0, n, 1, parts)
    again, characters, written_characters = _repeated(kinds, count, parts)
    out[2], out[3] = again / count, characters / n
    written = punctuated = short = 0
    for k in range(count):
        if not _is_blank(kinds, parts.start[k], parts.end[k]):
            written += 1
            punctuated += kinds[parts.end[k] - 1] & SENTENCE_END > 0
            short += parts.end[k] - parts.start[k] <= SHORT_LINE
    out[6], out[7] = punctuated / max(1, written), short / max(1, written)
    out[8] = written_characters / max(1, n - newlines)


@kernel
def _part(codes: Codes, low: int, high: int, least: int, parts: Parts) -> int:
    """Cut at runs of at least `least` newlines; how many parts there are."""
    count, start, hash, at = 0, low, SEED, low
    while at < high:
        if codes[at] != ord("\n"):
            hash = (hash ^ np.uint64(codes[at])) * FACTOR
            at += 1
            continue
        behind = at
        while behind < high and codes[behind] == ord("\n"):
            behind += 1
        if behind - at < least:
            hash = (hash ^ np.uint64(10)) * FACTOR
        else:
            parts.start[count], parts.end[count], parts.hash[count] = start, at, hash
            count, start, hash = count + 1, behind, SEED
        at = behind
    parts.start[count], parts.end[count], parts.hash[count] = start, high, hash
    return count + 1


@kernel
def _repeated(kinds: Kinds, count: int, parts: Parts) -> tuple[int, int, int]:
    """Parts equal to an earlier one, their characters, and those of them that are not blank."""
    bits = 2
    while (1 << bits) < 2 * count:
        bits += 1
    shift, mask = np.uint64(64 - bits), (1 << bits) - 1
    parts.seen[: 1 << bits] = 0
    again = characters = written = 0
    for k in range(count):
        hash = parts.hash[k]
        slot = np.int64((hash * FACTOR) >> shift)
        while parts.seen[slot] != 0 and parts.seen[slot] != hash:
            slot = (slot + 1) & mask
        if parts.seen[slot] == hash:
            size = parts.end[k] - parts.start[k]
            again, characters = again + 1, characters + size
            if not _is_blank(kinds, parts.start[k], parts.end[k]):
                written += size
        parts.seen[slot] = hash
    return again, characters, written


@kernel
def _is_blank(kinds: Kinds, low: int, high: int) -> bool:
    for at in range(low, high):  # noqa: SIM110 (Numba has no `all`)
        if not kinds[at] & SPACE:
            return False
    return True


@kernel
def _score_ends(codes: Codes, kinds: Kinds, n: int, out: Scores) -> None:
    """Shares of lines, as `str.splitlines` has them, that begin with a bullet or trail off."""
    lines = bullets = trailing = at = 0
    while at < n:
        low = at
        while at < n and not kinds[at] & LINE_BREAK:
            at += 1
        high = at
        while low < high and kinds[low] & SPACE:
            low += 1
        while high > low and kinds[high - 1] & SPACE:
            high -= 1
        lines += 1
        if low < high:
            bullets += codes[low] == ord("•") or codes[low] == ord("-")
            dots = high - low >= 3
            for k in range(1, 4):
                dots = dots and codes[high - k] == ord(".")
            trailing += dots or codes[high - 1] == ord("…")
        crlf = at + 1 < n and codes[at] == ord("\r") and codes[at + 1] == ord("\n")
        at += 2 if crlf else 1
    out[4], out[5] = bullets / lines, trailing / lines
