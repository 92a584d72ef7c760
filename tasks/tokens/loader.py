"""The loader: a batch is a pure function of the sample numbers asked for.

1. A layout says which tokens of the split each sample covers: windows of one stream in which each
   document is followed by an end-of-document token, or what a packing's index says.
2. Global sample number g lies in epoch g // samples. There a bijection keyed by (seed, epoch) says
   which sample it is, so nothing is shuffled, stored or restored: to resume, ask for the next g.
3. With a mixture, g has a source and a place among that source's samples, by arithmetic too; the
   place says epoch and sample as in 2, with a bijection of the source's own.
4. Workers that share a batch ask for disjoint ranges of g; the order is the same for any number.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cluster.artifact import Artifact
from tasks.tokens.batches import Batch, assemble, padded
from tasks.tokens.encoder import Encoder
from tasks.tokens.mixture.index import MixtureIndex, plan_mixture
from tasks.tokens.mixture.settings import Mixture
from tasks.tokens.packing.layouts import Layout, Packed, Windows
from tasks.tokens.permutation import permute
from tasks.tokens.shards.stream import TokenStream
from tasks.tokens.steps import Steps

CHUNK = 1 << 22  # tokens decoded at a time
ORDER = 1 << 13  # samples whose order is worked out at a time, and kept for the next batches


@dataclass(frozen=True)
class Arrangement:
    """A packing, and the mixture of its sources in a training of these steps.

    Without a mixture all samples of the packing are one epoch.
    """

    packing: Artifact | Path
    mixture: Mixture | None = None
    steps: Steps | None = None


class Loader:
    """Samples of `context` tokens in an order that `seed` fixes. `len(loader)` is one epoch's; of a
    mixture, each of its samples once.

    Raises BadInput when the split is too short for one sample, on a damaged shard or index, and
    for a mixture that the sources do not allow.
    """

    def __init__(
        self,
        shards: Artifact | Path,
        split: str,
        context: int,
        seed: int,
        arrangement: Arrangement | None = None,
    ):
        self.stream = TokenStream(shards, split)
        self.context, self.seed = context, seed
        self.layout, self.mixture_index = _arranged(self.stream, context, arrangement)
        self._begins = np.cumsum([0, *(source.samples for source in self.layout.sources)])
        self._chunk: tuple[int, np.ndarray] = (-1, np.empty(0, np.int64))
        self._chunk_size = min(ORDER, len(self))

    def __len__(self) -> int:
        return len(self.layout)

    def batch(self, first: int, count: int) -> Batch:
        """Global samples `first` .. `first + count`, in order."""
        return self.layout.batch(self.order(first, count))

    def tokens(self, sample: int) -> np.ndarray:
        """The tokens [T + 1] of one global sample: its inputs and its last target."""
        return self.layout.windows(self.order(sample, 1))[0]

    def raw(self, first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Tokens [B, T + 1] of global samples, and the number [B] of each within the split, which
        is the same in every epoch. Of samples without padding only.
        """
        order_B = self.order(first, count)
        return self.layout.windows(order_B), order_B

    def order(self, first: int, count: int) -> np.ndarray:
        """Which sample [count] of the split each global sample is."""
        assert self.mixture_index is None or first + count <= self.mixture_index.samples, (
            "beyond the mixture"
        )
        parts = []
        while count > 0:
            number, offset = divmod(first, self._chunk_size)
            kept, order = self._chunk
            if kept != number:
                begin = number * self._chunk_size
                order = self._order(np.arange(begin, begin + self._chunk_size))
                self._chunk = (number, order)
            parts.append(order[offset : offset + count])
            first, count = first + len(parts[-1]), count - len(parts[-1])
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.int64), *parts])

    def holding(self, stretches: Iterable[tuple[int, int]], samples: int) -> np.ndarray:
        """Which of the first global samples have a target in some stretches of the stream."""
        held = [self.layout.holding(start, stop) for start, stop in stretches]
        wanted = np.unique(np.concatenate([np.empty(0, np.int64), *held]))
        firsts = range(0, samples if len(wanted) else 0, ORDER)
        found = [
            first + np.flatnonzero(np.isin(self.order(first, min(ORDER, samples - first)), wanted))
            for first in firsts
        ]
        return np.concatenate([np.empty(0, np.int64), *found])

    def bytes_seen(self, samples: int, encoder: Encoder) -> bytes:
        """The text that training on the first `samples` samples has seen, each part once, in the
        order of the split.
        """
        if self.mixture_index is None and samples >= len(self) and isinstance(self.layout, Windows):
            return text_bytes(self.stream, encoder)
        return self.layout.text(np.unique(self.order(0, samples)), encoder)

    def _order(self, number_B: np.ndarray) -> np.ndarray:
        if self.mixture_index is None:
            return self._shuffled(number_B, len(self))
        order_B = np.empty_like(number_B)
        source_B, place_B = self.mixture_index.locate(number_B)
        for index in np.unique(source_B):
            rows, source = source_B == index, self.layout.sources[index]
            key = int.from_bytes(source.name.encode())
            shuffled = self._shuffled(place_B[rows], source.samples, key)
            order_B[rows] = self._begins[index] + shuffled
        return order_B

    def _shuffled(self, place_B: np.ndarray, size: int, *key: int) -> np.ndarray:
        """Which of `size` samples each place is, counted on over all epochs."""
        epoch_B, index_B = np.divmod(place_B, size)
        order_B = np.empty_like(place_B)
        for epoch in np.unique(epoch_B):
            rows = epoch_B == epoch
            order_B[rows] = permute(index_B[rows], size, self.seed, int(epoch), *key)
        return order_B


def _arranged(
    stream: TokenStream, context: int, arrangement: Arrangement | None
) -> tuple[Layout, MixtureIndex | None]:
    if arrangement is None:
        return Windows(stream, context), None
    layout = Packed(stream, context, arrangement.packing)
    if arrangement.mixture is None:
        return layout, None
    assert arrangement.steps is not None, "a mixture is that of a training's steps"
    return layout, plan_mixture(arrangement.mixture, layout.sources, arrangement.steps)


def windows(shards: Artifact | Path, split: str, context: int, rows: int) -> Iterator[Batch]:
    """Batches of up to `rows` windows that predict every token of a split once, in order, except
    its very first, which nothing precedes. The last window is padded.
    """
    stream = TokenStream(shards, split)
    ends = stream.eod, stream.tombstone
    predicted = len(stream) - 1
    for first in range(0, predicted, rows * context):
        start_B = np.arange(first, min(first + rows * context, predicted), context)
        if start_B[-1] + context <= predicted:
            yield assemble(stream.read(start_B, context + 1), *ends)
            continue
        if len(start_B) > 1:
            yield assemble(stream.read(start_B[:-1], context + 1), *ends)
        last = assemble(stream.read(start_B[-1:], predicted - int(start_B[-1]) + 1), *ends)
        yield padded(last, context)


def text_bytes(stream: TokenStream, encoder: Encoder) -> bytes:
    """The whole text of a split, its documents end to end."""
    starts = range(0, len(stream), CHUNK)
    parts = (stream.read(np.array([s]), min(CHUNK, len(stream) - s))[0] for s in starts)
    return b"".join(encoder.decode_bytes(stream.living(part).tolist()) for part in parts)
