"""Samples of a split as an objective has them: text from the loader, rows by its transform.

1. A sample is a window of as many tokens as fill a row (`model.objectives.lengths`), in the order
   of the loader.
2. Its row is a pure function of its tokens and of a generator keyed by (seed, sample number): the
   number that counts on over all epochs, or, with `dynamic` off, the one within the stream, so that
   every epoch hides the same tokens.
3. For a question on two texts the second is a window of other documents, keyed in the same way.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from cluster.artifact import Artifact
from model.config import Family
from model.objectives.catalog import special_tokens
from model.objectives.rows import Vocabulary
from model.objectives.transforms import Setup
from tasks.tokens.encoder import Encoder
from tasks.tokens.loader import Arrangement, Batch, Loader
from tasks.tokens.shards.documents import DocumentMap
from tasks.training.settings import ObjectiveSettings

TRIES = 8
"""Windows drawn in search of one of other documents; a text of one document has none."""
SENTENCE_ENDS = (".", "!", "?", "…", "。", "！", "？")
CLOSING = "\"')]}»”’"


class Samples:
    """Rows of one split. `len(samples)` is one epoch's.

    Raises BadInput when the split is too short for one sample.
    """

    def __init__(
        self,
        shards: Artifact | Path,
        split: str,
        setup: Setup,
        seed: int,
        dynamic: bool,
        arrangement: Arrangement | None = None,
    ):
        self.setup, self.seed, self.dynamic = setup, seed, dynamic
        self.loader = Loader(shards, split, setup.window, seed, arrangement)
        self.documents = DocumentMap(shards, split) if setup.needs_other else None

    def __len__(self) -> int:
        return len(self.loader)

    def batch(self, first: int, count: int) -> Batch:
        """Global samples `first` to `first + count`, in order."""
        tokens_BL, places_B = self.loader.raw(first, count)
        keys_B = np.arange(first, first + count) if self.dynamic else places_B
        rows = [
            self._row(tokens_L[:-1], int(place), int(key))
            for tokens_L, place, key in zip(tokens_BL, places_B, keys_B, strict=True)
        ]
        return self.setup.batch(rows)

    def seeing(self, stretches: Sequence[tuple[int, int]], samples: int) -> np.ndarray:
        """Which of the first global samples see a token of some documents, from where each begins
        in the stream to behind its end token: in their own window, or in that of the other text.
        """
        # A window reads its tokens, and not the one behind them that a causal network predicts.
        inside = [(start + 1, stop) for start, stop in stretches]
        found = self.loader.holding(inside, samples)
        if self.documents is None:
            return found
        held = [self.loader.layout.holding(*stretch) for stretch in inside]
        others = set(np.concatenate([np.empty(0, np.int64), *held]).tolist())
        places = self.loader.order(0, samples).tolist()
        keys = range(samples) if self.dynamic else places
        pairs = enumerate(zip(places, keys, strict=True))
        beside = [g for g, (place, key) in pairs if self._drawn(place, self._random(key)) in others]
        return np.union1d(found, np.array(beside, np.int64))

    def in_order(self, rows: int) -> Iterator[Batch]:
        """All of the split once, as it lies there, in batches of up to `rows`."""
        window = self.setup.window
        for first in range(0, len(self), rows):
            places_B = np.arange(first, min(first + rows, len(self)))
            tokens_BL = self.loader.stream.read(places_B * window, window)
            made = [self._row(t, int(p), int(p)) for t, p in zip(tokens_BL, places_B, strict=True)]
            yield self.setup.batch(made)

    def _row(self, tokens_L: np.ndarray, place: int, key: int) -> dict[str, np.ndarray]:
        random = self._random(key)
        return self.setup.row(self._ended(tokens_L), random, self._other(place, random))

    def _ended(self, tokens_L: np.ndarray) -> np.ndarray:
        """A window in which documents end where tokens were erased, so that its length, and with it
        what is drawn, stays as it was.
        """
        stream = self.loader.stream
        if stream.tombstone is None:
            return tokens_L
        return np.where(tokens_L == stream.tombstone, stream.eod, tokens_L)

    def _random(self, key: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=[self.seed, key]))

    def _other(self, place: int, random: np.random.Generator) -> np.ndarray:
        """A window that shares no document with this one; empty when none is found."""
        other = self._drawn(place, random)
        if other is None:
            return np.empty(0, np.int64)
        return self._ended(self.loader.layout.windows(np.array([other]))[0, :-1])

    def _drawn(self, place: int, random: np.random.Generator) -> int | None:
        """The number of such a window."""
        window, layout = self.setup.window, self.loader.layout
        if self.documents is not None:
            for other in random.integers(len(self), size=TRIES).tolist():
                if self.documents.apart(layout.begin(place), layout.begin(other), window):
                    return other
        return None


class CausalSamples:
    """The loader's own batches, under the same methods."""

    def __init__(
        self,
        shards: Artifact | Path,
        split: str,
        context: int,
        seed: int,
        arrangement: Arrangement | None = None,
    ):
        self.loader = Loader(shards, split, context, seed, arrangement)
        self.batch, self.seeing = self.loader.batch, self.loader.holding

    def __len__(self) -> int:
        return len(self.loader)


def samples_of(
    shards: Artifact | Path,
    split: str,
    settings: ObjectiveSettings,
    family: Family,
    vocabulary: Vocabulary | None,
    seed: int,
    arrangement: Arrangement | None = None,
) -> Samples | CausalSamples:
    """The samples of an objective; a causal one needs no vocabulary."""
    if settings.objective == "causal":
        return CausalSamples(shards, split, settings.context, seed, arrangement)
    assert vocabulary is not None, f"{settings.objective} needs the tokenizer's special tokens"
    setup = Setup(settings.objective, family, settings.context, vocabulary, settings.rates)
    return Samples(shards, split, setup, seed, settings.noise.dynamic, arrangement)


def vocabulary_of(encoder: Encoder, settings: ObjectiveSettings, family: Family) -> Vocabulary:
    """What an objective must know of a tokenizer. Raises BadInput when that lacks a token."""
    kinds = special_tokens(settings.objective, family, settings.context, settings.rates)
    ids = {"end": encoder.eod, "pad": encoder.pad}
    ids |= {kind: encoder.special(kind) for kind in kinds}
    every_V = np.arange(encoder.vocab_size)
    ordinary = np.setdiff1d(every_V, list(encoder.special_ids))
    ends = [_ends_sentence(encoder.decode_bytes([index])) for index in every_V.tolist()]
    return Vocabulary(ids, ordinary, np.array(ends))


def _ends_sentence(token: bytes) -> bool:
    """Whether a sentence, or a line, ends with this token."""
    text = token.decode(errors="ignore")
    return "\n" in text or text.rstrip().rstrip(CLOSING).endswith(SENTENCE_ENDS)
