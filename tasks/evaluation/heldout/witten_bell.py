"""Witten-Bell: an interpolated byte model, the baseline that a language model has to beat.

P(b | c) = (n(c b) + t(c) P(b | c')) / (n(c) + t(c)), where n counts in the training text, t(c) is
the number of different bytes seen after the context c, and c' is c without its first byte; below
the empty context lies 1/256. After a context that was never seen, P is that of the shorter one.
(Witten and Bell 1991, "The zero-frequency problem", method C; Chen and Goodman 1998, section 2.4.)
"""

from typing import Any

import numpy as np

from cluster.errors import BadInput

# With the byte itself eight, which fill a 64-bit number.
MAX_ORDER = 7


def witten_bell_bits_per_byte(train: bytes, heldout: bytes, order: int = 3) -> float:
    """Mean bits per byte of `heldout` under the model of `train` with 0..`order` bytes of context.

    8 without training text. Raises BadInput when `heldout` is empty.
    """
    if not heldout:
        raise BadInput("no held-out text to score; raise `shards.heldout_share`")
    return float(-np.log2(byte_probabilities(train, heldout, order)).mean())


def byte_probabilities(train: bytes, heldout: bytes, order: int = 3) -> np.ndarray:
    """The probability, float64 [len(heldout)], of each byte given those before it in `heldout`."""
    assert 0 <= order <= MAX_ORDER, f"contexts of 0 to {MAX_ORDER} bytes, not {order}"
    probability_N = np.full(len(heldout), 1 / 256)
    for context in range(order + 1):
        # The first bytes have no context of this length and keep what the shorter ones say.
        _interpolate(probability_N[context:], train, heldout, context)
    return probability_N


def _interpolate(probability_N: np.ndarray, train: bytes, heldout: bytes, context: int) -> None:
    """Turn the shorter context's probabilities, in place, into this context's."""
    grams, gram_counts = np.unique(_grams(train, context + 1), return_counts=True)
    shift = grams.dtype.type(8)
    contexts, first = np.unique(grams >> shift, return_index=True)
    if not len(grams):
        return
    totals = np.add.reduceat(gram_counts, first)
    # Runs are sorted, so those of a context lie together: as many as different bytes follow it.
    types = np.diff(first, append=len(grams))
    wanted_N = _grams(heldout, context + 1)
    at_N, seen_N = _find(contexts, wanted_N >> shift)
    gram_N, known_N = _find(grams, wanted_N)
    counts_N = np.where(known_N, gram_counts[gram_N], 0)
    mixed_N = (counts_N + types[at_N] * probability_N) / (totals[at_N] + types[at_N])
    np.copyto(probability_N, mixed_N, where=seen_N)


def _grams(text: bytes, length: int) -> np.ndarray:
    """Every run of `length` bytes as one integer, the first byte highest."""
    dtype: Any = np.uint32 if length <= 4 else np.uint64
    bytes_N = np.frombuffer(text, np.uint8)
    count = max(len(bytes_N) - length + 1, 0)
    packed = np.zeros(count, dtype)
    for offset in range(length):
        packed = packed << dtype(8) | bytes_N[offset : offset + count]
    return packed


def _find(sorted_M: np.ndarray, wanted_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each wanted value stands in a sorted array, and whether it is there."""
    at_N = np.minimum(np.searchsorted(sorted_M, wanted_N), len(sorted_M) - 1)
    return at_N, sorted_M[at_N] == wanted_N
