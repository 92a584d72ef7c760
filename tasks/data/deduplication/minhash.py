"""MinHash (Broder 1997): what documents have in common, from a few numbers each.

1. A document is the set of its shingles: hashes of 5 consecutive words, folded and in lower case.
2. Its signature has, for each of bands x rows permutations of the 32-bit numbers, the least of the
   permuted set. Two signatures agree in a place with the probability of the Jaccard similarity.
   x -> factor x + term (mod 2^32), factor odd, permutes; the hashes x are random already.
3. LSH: documents whose signatures agree in all rows of one of the bands are candidates. At
   similarity s that has the probability 1 - (1 - s^rows)^bands.

One pass over Arrow's text buffer: words, shingles and signatures of a document stay in the cache.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tasks.data.kernels import kernel
from tasks.data.kernels.buffers import Bytes, Offsets, text_buffer
from tasks.data.kernels.characters import lower_case, word_kinds
from tasks.data.kernels.folding import fold
from tasks.data.kernels.words import (
    FACTOR,
    SEED,
    Hashes,
    Kinds,
    LowerCase,
    hash_shingles,
    hash_words,
    mix,
)

SHINGLE_WORDS = 5
CHUNK = 2048  # shingles at a time, which fit the first-level cache
OWNER_BITS, HASH_BITS = np.uint64(16), np.uint64(48)
HASH_MASK = np.uint64((1 << 48) - 1)
# A text's number in its group has to fit into OWNER_BITS.
GROUP = 1 << 15  # texts whose shingles are sorted together
Numbers = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Family:
    """bands x rows permutations, always the same."""

    bands: int = 14
    rows: int = 8

    @cached_property
    def constants(self) -> Numbers:
        """`[2, bands x rows]`: odd factors, and terms."""
        count = self.bands * self.rows
        # By a hash, not a generator: an index of an earlier run must
        # fit on any machine, in any version.
        raw = hashlib.shake_128(b"headrace minhash 2").digest(8 * count)
        drawn = np.frombuffer(raw, "<u4").reshape(2, count).astype(np.uint32)
        drawn[0] |= 1
        return drawn

    def chances(self, similarities: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The probability that two documents of each Jaccard similarity become candidates."""
        return np.asarray(1 - (1 - similarities**self.rows) ** self.bands)


def signatures(
    texts: pa.Array, family: Family, shingle_words: int = SHINGLE_WORDS
) -> tuple[Numbers, Offsets]:
    """`[n, bands x rows]` signatures and `[n]` numbers of shingles, repeated ones included.

    A text without words has no shingle, and a signature of nothing but 2^32 - 1.
    """
    data, offsets = text_buffer(fold(texts))
    out = np.full((len(texts), family.bands * family.rows), 0xFFFFFFFF, np.uint32)
    counts = np.zeros(len(texts), np.int64)
    factors, terms = family.constants
    words = np.empty(_room(offsets), np.uint64)
    _sign(
        data, offsets, word_kinds(), lower_case(), factors, terms, shingle_words, words, out, counts
    )
    return out, counts


def band_keys(signed: Numbers, family: Family) -> Hashes:
    """`[bands, n]` hashes of the rows of each band."""
    keys = np.empty((family.bands, len(signed)), np.uint64)
    _band_keys(signed, family.rows, keys)
    return keys


def shingle_sets(texts: pa.Array) -> tuple[Hashes, Offsets]:
    """The distinct 48-bit shingle hashes of each text, sorted, in one array; n + 1 offsets."""
    parts = [_sets(texts.slice(first, GROUP)) for first in range(0, max(1, len(texts)), GROUP)]
    sizes = np.concatenate([np.diff(offsets) for _, offsets in parts])
    return np.concatenate([v for v, _ in parts]), np.concatenate([[0], np.cumsum(sizes)])


def _sets(texts: pa.Array) -> tuple[Hashes, Offsets]:
    """One sort for all texts: the upper 16 bits of a key say which one it belongs to."""
    data, offsets = text_buffer(fold(texts))
    # A text has no more shingles than half its bytes; pages that stay empty cost nothing.
    keys = np.empty(int(offsets[-1] - offsets[0]) // 2 + 2 * len(offsets), np.uint64)
    count = _owned_shingles(data, offsets, word_kinds(), lower_case(), SHINGLE_WORDS, keys)
    keys = np.sort(keys[:count])
    distinct = np.ones(count, np.bool_)
    distinct[1:] = keys[1:] != keys[:-1]
    keys = keys[distinct]
    owners = np.arange(len(texts) + 1).astype(np.uint64) << HASH_BITS
    return keys & HASH_MASK, np.searchsorted(keys, owners)


def _room(offsets: Offsets) -> int:
    return int(np.diff(offsets).max(initial=0)) // 2 + 2


@kernel
def _sign(
    data: Bytes,
    offsets: Offsets,
    kinds: Kinds,
    lower: LowerCase,
    factors: Numbers,
    terms: Numbers,
    words_each: int,
    words: Hashes,
    out: Numbers,
    counts: Offsets,
) -> None:
    chunk = np.empty(CHUNK, np.uint32)
    for text in range(len(offsets) - 1):
        count = hash_words(data, offsets[text], offsets[text + 1], kinds, lower, words)
        count = hash_shingles(words, count, words_each)
        counts[text] = count
        least = out[text]
        for start in range(0, count, CHUNK):
            size = min(CHUNK, count - start)
            for j in range(size):
                chunk[j] = np.uint32(words[start + j] >> np.uint64(32))
            for k in range(len(factors)):  # the inner loop is the one over shingles: it vectorises
                factor, term, best = factors[k], terms[k], least[k]
                for j in range(size):
                    best = min(best, np.uint32(chunk[j] * factor + term))
                least[k] = best


@kernel
def _band_keys(signed: Numbers, rows: int, keys: Hashes) -> None:
    for band in range(len(keys)):
        for text in range(len(signed)):
            value = SEED
            for row in range(band * rows, (band + 1) * rows):
                value = mix(value * FACTOR + np.uint64(signed[text, row]))
            keys[band, text] = value


@kernel
def _owned_shingles(
    data: Bytes,
    offsets: Offsets,
    kinds: Kinds,
    lower: LowerCase,
    words_each: int,
    keys: Hashes,
) -> int:
    length = 0
    for text in range(len(offsets) - 1):
        # Written where they stay; what `hash_words` needs beyond that the next text overwrites.
        own = keys[length:]
        count = hash_words(data, offsets[text], offsets[text + 1], kinds, lower, own)
        count = hash_shingles(own, count, words_each)
        for j in range(count):
            own[j] = (own[j] >> OWNER_BITS) | (np.uint64(text) << HASH_BITS)
        length += count
    return length
