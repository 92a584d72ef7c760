"""How samples lie in the stream of a split: by arithmetic, or by a packing's index.

A layout has `len(layout)` samples, numbered as they lie; in which order they are taken is no
concern of it. Both kinds hold what they need of the index in mapped files, never in memory.
"""

from pathlib import Path
from typing import Protocol

import numpy as np

from cluster.artifact import Artifact
from cluster.errors import BadInput
from tasks.tokens.batches import Batch, assemble, assemble_rows
from tasks.tokens.encoder import Encoder
from tasks.tokens.mixture.index import SourceSize
from tasks.tokens.packing.facts import PackingFacts
from tasks.tokens.shards.columns import Column
from tasks.tokens.shards.stream import TokenStream


class Layout(Protocol):
    """Samples by their number in the split."""

    stream: TokenStream
    sources: tuple[SourceSize, ...]
    """Those whose samples lie side by side in this order; none where that is not known."""

    def __len__(self) -> int: ...

    def batch(self, sample_B: np.ndarray) -> Batch:
        """Some samples as a batch."""
        ...

    def windows(self, sample_B: np.ndarray) -> np.ndarray:
        """The tokens [B, T + 1] of samples without padding: inputs and last target."""
        ...

    def begin(self, sample: int) -> int:
        """Where in the stream the tokens of a sample begin."""
        ...

    def stretches(self, sample: int) -> list[tuple[int, int]]:
        """Where in the stream the targets of each of its pieces begin and end."""
        ...

    def holding(self, start: int, stop: int) -> np.ndarray:
        """The samples with a target in a stretch of the stream."""
        ...

    def text(self, sample_B: np.ndarray, encoder: Encoder) -> bytes:
        """The text of some samples, end to end."""
        ...


class Windows:
    """Sample i covers tokens i*T .. (i+1)*T of the stream, and the one after them as a target.

    There are (N-1) // T samples; the few tokens behind the last full one are left out.
    Raises BadInput when the split is too short for one.
    """

    sources: tuple[SourceSize, ...] = ()

    def __init__(self, stream: TokenStream, context: int):
        self.stream, self.context = stream, context
        self._samples = (len(stream) - 1) // context
        if self._samples < 1:
            raise BadInput(
                f"a context of {context} tokens needs {context + 1}, the {stream.split} split has "
                f"{len(stream)}; lower `context` or give more text"
            )

    def __len__(self) -> int:
        return self._samples

    def batch(self, sample_B: np.ndarray) -> Batch:
        """Some samples as a batch."""
        return assemble(self.windows(sample_B), self.stream.eod, self.stream.tombstone)

    def windows(self, sample_B: np.ndarray) -> np.ndarray:
        """The tokens [B, T + 1] of some samples."""
        return self.stream.read(sample_B * self.context, self.context + 1)

    def begin(self, sample: int) -> int:
        """Where in the stream the tokens of a sample begin."""
        return sample * self.context

    def stretches(self, sample: int) -> list[tuple[int, int]]:
        """Where in the stream the targets of a sample begin and end: one piece."""
        return [(sample * self.context + 1, (sample + 1) * self.context + 1)]

    def holding(self, start: int, stop: int) -> np.ndarray:
        """The samples with a target in a stretch of the stream."""
        first, last = max(start - 1, 0) // self.context, (stop - 2) // self.context
        return np.arange(first, min(last + 1, self._samples))

    def text(self, sample_B: np.ndarray, encoder: Encoder) -> bytes:
        """The text of some samples, end to end."""
        tokens_BT = self.stream.read(sample_B * self.context, self.context)
        return encoder.decode_bytes(self.stream.living(tokens_BT).tolist())


class Packed:
    """The samples of a packing's index.

    Raises BadInput when it was made for other shards or another context, or has changed.
    """

    def __init__(self, stream: TokenStream, context: int, packing: Artifact | Path):
        index = Artifact.load(packing) if isinstance(packing, Path) else packing
        _check_belongs(index, stream, context)
        self.stream, self.context = stream, context
        self.sources = PackingFacts.of(index).sources
        self._ends, self._starts, self._lengths = (
            Column(index, f"{name}.arrow") for name in ("ends", "starts", "lengths")
        )

    def __len__(self) -> int:
        return len(self._ends)

    def batch(self, sample_B: np.ndarray) -> Batch:
        """Some samples as a batch."""
        rows = [self._pieces(sample) for sample in sample_B.tolist()]
        return assemble_rows(rows, self.context, self.stream.eod, self.stream.tombstone)

    def windows(self, sample_B: np.ndarray) -> np.ndarray:
        """The tokens [B, T + 1] of samples without padding."""
        rows = []
        for sample in sample_B.tolist():
            pieces = self._pieces(sample)
            rows.append(np.concatenate([*(tokens[:-1] for tokens in pieces), pieces[-1][-1:]]))
        return np.stack(rows)

    def begin(self, sample: int) -> int:
        """Where in the stream the tokens of a sample begin."""
        return max(self.stretches(sample)[0][0] - 1, 0)

    def text(self, sample_B: np.ndarray, encoder: Encoder) -> bytes:
        """The text of some samples, end to end."""
        parts = [
            self.stream.span(start, stop)
            for sample in sample_B.tolist()
            for start, stop in self.stretches(sample)
        ]
        if not parts:
            return b""
        return encoder.decode_bytes(self.stream.living(np.concatenate(parts)).tolist())

    def _pieces(self, sample: int) -> list[np.ndarray]:
        """The targets of each piece after the token that comes before them."""
        return [self._with_input(start, stop) for start, stop in self.stretches(sample)]

    def _with_input(self, start: int, stop: int) -> np.ndarray:
        if start:
            return self.stream.span(start - 1, stop)
        first = np.array([self.stream.eod], self.stream.dtype)  # no document ends before the first
        return np.concatenate([first, self.stream.span(0, stop)])

    def stretches(self, sample: int) -> list[tuple[int, int]]:
        """Where in the stream the targets of each piece begin and end."""
        begin = int(self._ends.span(sample - 1, sample)[0]) if sample else 0
        end = int(self._ends.span(sample, sample + 1)[0])
        starts = self._starts.span(begin, end).tolist()
        lengths = self._lengths.span(begin, end).tolist()
        return [(start, start + length) for start, length in zip(starts, lengths, strict=True)]

    def holding(self, start: int, stop: int) -> np.ndarray:
        """The samples with a target in a stretch of the stream."""
        start_M = self._starts.span(0, len(self._starts))
        end_M = start_M + self._lengths.span(0, len(self._lengths))
        piece = np.flatnonzero((start_M < stop) & (end_M > start))
        ends = self._ends.span(0, len(self._ends))
        return np.unique(np.searchsorted(ends, piece, side="right"))


def _check_belongs(packing: Artifact, stream: TokenStream, context: int) -> None:
    about = packing.manifest
    if about.stage != "packing":
        raise BadInput(f"{packing.name} is no packing; name an artifact of the packing stage")
    if about.inputs["shards"] != stream.artifact.fingerprint or stream.split != "train":
        raise BadInput(
            f"{packing.name} packs the train split of other shards than {stream.artifact.name}; "
            "run `headrace run RECIPE --rebuild packing`"
        )
    if (packed := PackingFacts.of(packing).context) != context:
        raise BadInput(
            f"{packing.name} packs {packed} tokens a sample, the context is "
            f"{context}; run `headrace run RECIPE --rebuild packing`"
        )
