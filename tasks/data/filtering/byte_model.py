"""An n-gram language model over bytes, by which texts unlike a reference stand out.

Interpolated Witten-Bell smoothing (Witten and Bell 1991, method C), as in the baseline of the
evaluation: P(b | c) = (n(c b) + t(c) P(b | c')) / (n(c) + t(c)), where t(c) is the number of
different bytes seen after context c, and c' is c without its first byte; below lies 1/256.
Filtering by such a model's perplexity: Wenzek et al. 2020 (CCNet, arXiv 1911.00359, section 3).
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tasks.data.kernels import kernel
from tasks.data.kernels.buffers import Bytes, Offsets, text_buffer
from tasks.data.kernels.words import FACTOR

# Seven bytes of a run and the one for its length fill a 64-bit key.
MAX_ORDER = 6
Keys = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ByteModel:
    """Counts of every run of up to `order` + 1 bytes, in one open-addressing table.

    `keys` [places]: a run's bytes, the last lowest, and its length in the highest byte; 0 is an
    empty place. `seen` [places]: how often it occurs; `followed` [places]: how often a byte
    follows it; `types` [places]: how many different ones do.
    """

    order: int
    keys: Keys
    seen: Counts
    followed: Counts
    types: Counts

    @classmethod
    def train(cls, texts: pa.Array, order: int) -> "ByteModel":
        """Count every run of the texts; a run does not reach over the end of one."""
        assert 0 <= order <= MAX_ORDER, f"contexts of 0 to {MAX_ORDER} bytes, not {order}"
        data, offsets = text_buffer(texts)
        tables = _count(data, offsets, order)
        return cls(order, *tables)

    def bits_per_byte(self, texts: pa.Array) -> npt.NDArray[np.float64]:
        """Mean bits per byte of each text; 8 for one that the model knows nothing of."""
        data, offsets = text_buffer(texts)
        out = np.empty(len(offsets) - 1, np.float64)
        _score(data, offsets, self.order, self.keys, self.seen, self.followed, self.types, out)
        return out

    def save(self, path: Path) -> None:
        """Write the table."""
        np.savez(path, **vars(self))

    @classmethod
    def load(cls, path: Path) -> "ByteModel":
        """The model that `save` wrote."""
        with np.load(path) as arrays:
            return cls(int(arrays["order"]), *(arrays[n] for n in TABLES))


TABLES = ("keys", "seen", "followed", "types")


@kernel
def _place(keys: Keys, key: np.uint64) -> int:
    """Where a key is in the table, or the empty place where it belongs."""
    last = len(keys) - 1
    hash = key * FACTOR
    # The low bits of a product know only the key's low bits: the high ones are folded in.
    place = np.int64((hash ^ (hash >> np.uint64(32))) & np.uint64(last))
    while keys[place] != 0 and keys[place] != key:
        place = (place + 1) & last
    return int(place)


@kernel
def _count(data: Bytes, offsets: Offsets, order: int) -> tuple[Keys, Counts, Counts, Counts]:
    keys = np.zeros(1 << 16, np.uint64)
    seen = np.zeros(len(keys), np.int64)
    followed = np.zeros(len(keys), np.int64)
    types = np.zeros(len(keys), np.int64)
    used = 0
    for row in range(len(offsets) - 1):
        for at in range(offsets[row], offsets[row + 1]):
            # About half full at most, so that a search is short and meets an empty place.
            if (used + order + 2) * 2 > len(keys):
                keys, seen, followed, types = _doubled(keys, seen, followed, types)
            run, shift = np.uint64(0), np.uint64(0)
            for length in range(min(order, at - offsets[row]) + 1):
                run = run | np.uint64(data[at - length]) << shift
                shift = shift + np.uint64(8)
                context = (run >> np.uint64(8)) | np.uint64(length + 1) << np.uint64(56)
                before = _place(keys, context)
                used += keys[before] == 0
                keys[before] = context
                whole = run | np.uint64(length + 2) << np.uint64(56)
                place = _place(keys, whole)
                used += keys[place] == 0
                keys[place] = whole
                types[before] += seen[place] == 0
                followed[before] += 1
                seen[place] += 1
    return keys, seen, followed, types


@kernel
def _doubled(
    keys: Keys, seen: Counts, followed: Counts, types: Counts
) -> tuple[Keys, Counts, Counts, Counts]:
    more = np.zeros(2 * len(keys), np.uint64)
    seen_too = np.zeros(len(more), np.int64)
    followed_too = np.zeros(len(more), np.int64)
    types_too = np.zeros(len(more), np.int64)
    for old in range(len(keys)):
        if keys[old] != 0:
            place = _place(more, keys[old])
            more[place] = keys[old]
            seen_too[place] = seen[old]
            followed_too[place] = followed[old]
            types_too[place] = types[old]
    return more, seen_too, followed_too, types_too


@kernel
def _score(
    data: Bytes,
    offsets: Offsets,
    order: int,
    keys: Keys,
    seen: Counts,
    followed: Counts,
    types: Counts,
    out: npt.NDArray[np.float64],
) -> None:
    for row in range(len(out)):
        bits = 0.0
        for at in range(offsets[row], offsets[row + 1]):
            probability, run, shift = 1 / 256, np.uint64(0), np.uint64(0)
            for length in range(min(order, at - offsets[row]) + 1):
                run = run | np.uint64(data[at - length]) << shift
                shift = shift + np.uint64(8)
                context = (run >> np.uint64(8)) | np.uint64(length + 1) << np.uint64(56)
                before = _place(keys, context)
                if followed[before] == 0:  # a longer context was not seen either
                    break
                place = _place(keys, run | np.uint64(length + 2) << np.uint64(56))
                count = seen[place] + types[before] * probability
                probability = count / (followed[before] + types[before])
            bits -= np.log2(probability)
        out[row] = bits / max(1, offsets[row + 1] - offsets[row])
