"""Texts as exact deduplication compares them: in NFC, every run of white space as one space.

All passes work on whole arrays; only texts with characters that NFC may change, such as combining
marks, pass through Python.
"""

import unicodedata

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tasks.data.kernels import kernel
from tasks.data.kernels.buffers import Bytes, Offsets, text_array, text_buffer
from tasks.data.kernels.characters import SPACE, composing, decode, kinds
from tasks.data.kernels.folding import holding
from tasks.data.kernels.words import FACTOR, SEED, Hashes, Kinds, mix


def normalise(texts: pa.Array) -> pa.Array:
    """NFC, one space for every run of white space, and none at the ends."""
    data, offsets = text_buffer(compose(texts))
    room = int(offsets[-1] - offsets[0])
    out, ends = np.empty(room, np.uint8), np.zeros(len(offsets), np.int64)
    _collapse(data, offsets, kinds(), out, ends)
    return text_array(out, ends)


def compose(texts: pa.Array) -> pa.Array:
    """Unicode's normalisation form C."""
    loose = holding(texts, composing(), 0xCC)  # below U+0300 nothing composes
    if not loose.any():
        return texts
    mask = pa.array(loose)
    # Arrow's utf8_normalize (25.0) decomposes when asked for NFC.
    composed = [unicodedata.normalize("NFC", t) for t in texts.filter(mask).to_pylist()]
    return pc.replace_with_mask(texts, mask, pa.array(composed, pa.large_string()))


def digests(normal: pa.Array) -> Hashes:
    """64 bits of each text. They find candidates; that these are equal is seen on the texts."""
    data, offsets = text_buffer(normal)
    out = np.zeros(len(normal), np.uint64)
    _digest(data, offsets, out)
    return out


@kernel
def _collapse(data: Bytes, offsets: Offsets, kinds: Kinds, out: Bytes, ends: Offsets) -> None:
    length = 0
    for text in range(len(offsets) - 1):
        at, end, first = offsets[text], offsets[text + 1], length
        gap = 1
        while at < end:
            code = int(data[at])
            if code < 0x80:  # without a branch on what it is
                space = int(kinds[code] // SPACE) & 1
                out[length] = 0x20 if space else code
                length += 1 - (space & gap)
                gap = space
                at += 1
                continue
            before = at
            code, at = decode(data, at)
            if kinds[code] & SPACE:
                out[length] = 0x20
                length += 1 - gap
                gap = 1
            else:
                gap = 0
                for place in range(before, at):
                    out[length] = data[place]
                    length += 1
        if gap and length > first:
            length -= 1
        ends[text + 1] = length


@kernel
def _digest(data: Bytes, offsets: Offsets, out: Hashes) -> None:
    for text in range(len(out)):
        value = SEED
        for at in range(offsets[text], offsets[text + 1]):
            value = (value ^ np.uint64(data[at])) * FACTOR
        out[text] = mix(value)
