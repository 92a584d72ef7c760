"""Measures of a batch of documents, by the scorer that knows them, when they are first asked for.

A scorer is a native pass that fills several columns at once. To add one, write a module with
`NAMES` and `score(texts, alive, wanted) -> [documents, measures]`, list it in `SCORERS`, and give
rules for its measures in `rules.RULES`.
"""

from collections.abc import Callable, Collection
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tasks.data.filtering import counters, layout, markers, wording
from tasks.data.filtering.alphabet import Alive, Scores


class Scorer(NamedTuple):
    """`score(texts, alive, wanted)` gives a column for each name; rows of documents that are not
    alive, and columns that are not wanted, may hold anything.
    """

    names: tuple[str, ...]
    score: Callable[[pa.Array, Alive, Collection[str]], Scores]


def _length(texts: pa.Array, alive: Alive, wanted: Collection[str]) -> Scores:
    return pc.utf8_length(texts).to_numpy(zero_copy_only=False).astype(np.float64)[:, None]


SCORERS = (
    Scorer(("length",), _length),
    Scorer(counters.NAMES, counters.score),
    Scorer(layout.NAMES, layout.score),
    Scorer(wording.NAMES, wording.score),
    Scorer(markers.NAMES, markers.score),
)


class Measures:
    """The measures of some texts; `wanted` are all that will be asked for."""

    def __init__(self, texts: pa.Array, wanted: Collection[str]):
        self.texts, self.wanted = texts, wanted
        self._columns: dict[str, Scores] = {}

    def column(self, name: str, alive: Alive) -> Scores:
        """One measure, `[documents]`, of the documents that are alive. They may only become fewer
        from one call to the next.
        """
        if name not in self._columns:
            scorer = next(s for s in SCORERS if name in s.names)
            table = scorer.score(self.texts, alive, self.wanted)
            self._columns |= dict(zip(scorer.names, table.T, strict=True))
        return self._columns[name]
