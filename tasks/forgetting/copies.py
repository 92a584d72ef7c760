"""Near copies of some texts: candidates by the signatures of stage `dedup`, verified on their
shingles.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tasks.data.deduplication.minhash import Family, band_keys, shingle_sets, signatures
from tasks.data.deduplication.normal import normalise
from tasks.data.deduplication.settings import DedupSettings

RULES = DedupSettings()
FAMILY = Family(RULES.bands, RULES.rows)


class Copy(NamedTuple):
    """A row that is nearly one of the texts: its number, that of the text, their Jaccard
    similarity.
    """

    row: int
    of: int
    similarity: float


class Copies:
    """What is at least as like one of some texts as stage `dedup` takes for a near duplicate."""

    def __init__(self, texts: Sequence[str]):
        normal = normalise(pa.array(texts, pa.large_string()))
        keys, counts = _keys(normal)
        self._sets, self._offsets = shingle_sets(normal)
        self._texts: dict[tuple[int, int], list[int]] = defaultdict(list)
        for text in np.flatnonzero(counts).tolist():  # without words all are alike
            for band, key in enumerate(keys[:, text].tolist()):
                self._texts[band, key].append(text)

    def among(self, texts: pa.Array) -> list[Copy]:
        """The near copies among some rows, each beside the text that it is most like."""
        normal = normalise(texts)
        keys, counts = _keys(normal)
        candidates = {
            row: of
            for row in np.flatnonzero(counts).tolist()
            if (of := self._sharing(keys[:, row].tolist()))
        }
        sets, offsets = shingle_sets(normal.take(pa.array(list(candidates), pa.int64())))
        found = []
        for place, (row, of) in enumerate(candidates.items()):
            own = sets[offsets[place] : offsets[place + 1]]
            best = max((Copy(row, text, self._jaccard(own, text)) for text in of), key=_likeness)
            if best.similarity >= RULES.threshold:
                found.append(best)
        return found

    def _sharing(self, keys: list[int]) -> set[int]:
        """The texts with one of a row's band keys."""
        none: list[int] = []
        return {text for place in enumerate(keys) for text in self._texts.get(place, none)}

    def _jaccard(self, own: np.ndarray, text: int) -> float:
        other = self._sets[self._offsets[text] : self._offsets[text + 1]]
        both = len(np.intersect1d(own, other, assume_unique=True))
        return both / (len(own) + len(other) - both)


def _likeness(copy: Copy) -> float:
    return copy.similarity


def _keys(normal: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """The keys of every band, [bands, N], and how many shingles each text has, [N]."""
    signed, counts = signatures(normal, FAMILY)
    return band_keys(signed, FAMILY), counts
