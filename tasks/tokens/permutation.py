"""A keyed shuffle of 0..size-1 that is computed, not stored: where any index goes, at once.

A Feistel network is a bijection on a power of two; indices that land outside 0..size-1 walk on
along their cycle until they are inside (Black and Rogaway 2002, "Ciphers with arbitrary finite
domains", methods 2 and 3). The power of two is below 2 x size, so the walk takes fewer than two
steps on average.
"""

import hashlib
from functools import lru_cache

import numpy as np

ROUNDS = 8  # with 4 or 6, orders of five or ten things are measurably uneven


def permute(index_N: np.ndarray, size: int, *key: int) -> np.ndarray:
    """The images, int64 [N], of indices in 0..size-1 under the bijection named by `key`."""
    assert 0 < size <= 1 << 62, f"no permutation of {size} things"
    bits = max((size - 1).bit_length(), 2)
    image_N = _feistel(index_N.astype(np.uint64), bits, key)
    while (outside := image_N >= size).any():
        image_N[outside] = _feistel(image_N[outside], bits, key)
    return image_N.astype(np.int64)


def _feistel(value_N: np.ndarray, bits: int, key: tuple[int, ...]) -> np.ndarray:
    """A bijection on 0..2**bits-1: each half in turn is XORed with a keyed hash of the other."""
    low_bits = np.uint64(bits // 2)
    low_mask = np.uint64((1 << bits // 2) - 1)
    high_mask = np.uint64((1 << bits - bits // 2) - 1)
    high_N, low_N = value_N >> low_bits, value_N & low_mask
    keys = _round_keys(key)
    for low_key, high_key in zip(keys[::2], keys[1::2], strict=True):
        low_N = low_N ^ (_hash(high_N, low_key) & low_mask)
        high_N = high_N ^ (_hash(low_N, high_key) & high_mask)
    return (high_N << low_bits) | low_N


def _hash(value_N: np.ndarray, key: np.uint64) -> np.ndarray:
    """32 well-mixed bits: the middle of a product with an odd key."""
    return ((value_N ^ key) * (key | np.uint64(1))) >> np.uint64(32)


@lru_cache(maxsize=64)
def _round_keys(key: tuple[int, ...]) -> tuple[np.uint64, ...]:
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8 * ROUNDS).digest()
    return tuple(np.frombuffer(digest, dtype="<u8"))
