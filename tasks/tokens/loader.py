"""The loader: a batch is a pure function of the sample numbers asked for.

1. The split is one stream of N tokens, each document followed by an end-of-document token.
2. Sample i covers tokens i*T .. (i+1)*T of it, plus the one after them as the last target. An epoch
   has (N-1) // T samples; the few tokens behind the last full sample are left out.
3. Global sample number g lies in epoch g // samples. There a bijection keyed by (seed, epoch) says
   which sample it is, so nothing is shuffled, stored or restored: to resume, ask for the next g.
4. Workers that share a batch ask for disjoint ranges of g; the order is the same for any number.
5. An end-of-document token ends one document as a target, and begins the next one as an input: the
   first word of a document is predicted from it alone, and attention need not leave a document.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from cluster.artifact import Artifact
from cluster.errors import BadInput
from tasks.tokens.encoder import Encoder
from tasks.tokens.permutation import permute
from tasks.tokens.stream import TokenStream

Batch = dict[str, np.ndarray]
"""`inputs`, `targets` (-100: no loss), `documents` (0: padding, else 1, 2, ... within the row) and
`positions` (from 0 in each document), all int64 [B, T]."""

NO_LOSS = -100
CHUNK = 1 << 22


class Loader:
    """Samples of `context` tokens in an order that `seed` fixes. `len(loader)` is one epoch's.

    Raises BadInput when the split is too short for one sample, and on a damaged shard.
    """

    def __init__(self, shards: Artifact | Path, split: str, context: int, seed: int):
        self.stream = TokenStream(shards, split)
        self.context, self.seed = context, seed
        self._samples = (len(self.stream) - 1) // context
        if self._samples < 1:
            raise BadInput(
                f"a context of {context} tokens needs {context + 1}, the {split} split has "
                f"{len(self.stream)}; lower `context` or give more text"
            )

    def __len__(self) -> int:
        return self._samples

    def batch(self, first: int, count: int) -> Batch:
        """Global samples `first` .. `first + count`, in order."""
        return assemble(self._read(first, count), self.stream.eod)

    def tokens(self, sample: int) -> np.ndarray:
        """The tokens [T + 1] of one global sample: its inputs and its last target."""
        return self._read(sample, 1)[0]

    def bytes_seen(self, samples: int, encoder: Encoder) -> bytes:
        """The text that training on the first `samples` samples has seen, each part once, in the
        order of the stream.
        """
        if samples >= len(self):
            return text_bytes(self.stream, encoder)
        order_N = np.sort(self._order(0, samples))
        tokens_NT = self.stream.read(order_N * self.context, self.context)
        return encoder.decode_bytes(tokens_NT.ravel().tolist())

    def _read(self, first: int, count: int) -> np.ndarray:
        return self.stream.read(self._order(first, count) * self.context, self.context + 1)

    def _order(self, first: int, count: int) -> np.ndarray:
        """Which sample [count] of the stream each global sample is."""
        epoch_B, index_B = np.divmod(np.arange(first, first + count), len(self))
        order_B = np.empty(count, np.int64)
        for epoch in np.unique(epoch_B):
            rows = epoch_B == epoch
            order_B[rows] = permute(index_B[rows], len(self), self.seed, int(epoch))
        return order_B


def windows(shards: Artifact | Path, split: str, context: int, rows: int) -> Iterator[Batch]:
    """Batches of up to `rows` windows that predict every token of a split once, in order, except
    its very first, which nothing precedes. The last window is padded.
    """
    stream = TokenStream(shards, split)
    predicted = len(stream) - 1
    for first in range(0, predicted, rows * context):
        start_B = np.arange(first, min(first + rows * context, predicted), context)
        if start_B[-1] + context <= predicted:
            yield assemble(stream.read(start_B, context + 1), stream.eod)
            continue
        if len(start_B) > 1:
            yield assemble(stream.read(start_B[:-1], context + 1), stream.eod)
        last = assemble(stream.read(start_B[-1:], predicted - int(start_B[-1]) + 1), stream.eod)
        yield _padded(last, context)


def text_bytes(stream: TokenStream, encoder: Encoder) -> bytes:
    """The whole text of a split, its documents end to end."""
    starts = range(0, len(stream), CHUNK)
    parts = (stream.read(np.array([s]), min(CHUNK, len(stream) - s))[0] for s in starts)
    return b"".join(encoder.decode_bytes(part.tolist()) for part in parts)


def assemble(tokens_BL: np.ndarray, eod: int) -> Batch:
    """A batch from windows of T + 1 tokens."""
    inputs_BT = tokens_BL[:, :-1].astype(np.int64)
    begins_BT = tokens_BL[:, :-1] == eod
    documents_BT = np.ones_like(inputs_BT)
    positions_BT = np.broadcast_to(np.arange(inputs_BT.shape[1]), inputs_BT.shape).copy()
    rows = np.flatnonzero(begins_BT.any(axis=1))
    documents_BT[rows], positions_BT[rows] = _boundaries(begins_BT[rows])
    return {
        "inputs": inputs_BT,
        "targets": tokens_BL[:, 1:].astype(np.int64),
        "documents": documents_BT,
        "positions": positions_BT,
    }


def _boundaries(begins_BT: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Documents and positions [B, T], given where documents begin."""
    index_T = np.arange(begins_BT.shape[1])
    documents_BT = np.cumsum(begins_BT, axis=1) + 1 - begins_BT[:, :1]
    positions_BT = index_T - np.maximum.accumulate(np.where(begins_BT, index_T, 0), axis=1)
    return documents_BT, positions_BT


def _padded(batch: Batch, context: int) -> Batch:
    fill = {"inputs": 0, "targets": NO_LOSS, "documents": 0, "positions": 0}
    missing = context - batch["inputs"].shape[1]
    return {
        name: np.pad(values, ((0, 0), (0, missing)), constant_values=fill[name])
        for name, values in batch.items()
    }
