"""What was read and may be read again: the caches of rows that ended, by their tokens.

A conversation comes back with all that was said and one turn more; exams begin with the same
examples. Such a request goes on from the cache of the one before (Zheng et al. 2024, SGLang,
section 3, whose tree this is a list of: it is as long as the memory has room for caches).
"""

from collections.abc import Sequence

import numpy as np

from model.cache import Cache
from model.config import ModelConfig

LEAST = 16
"""Shared tokens below which reading them anew is cheaper than looking after them."""


class Prefixes:
    """Caches of one row each with the tokens that they have read, the last used last."""

    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        self.kept: list[tuple[np.ndarray, Cache]] = []

    def keep(self, tokens: Sequence[int], cache: Cache) -> None:
        """Keep what a row that ended has read."""
        if len(tokens) >= LEAST:
            self.kept.append((np.array(tokens), cache))

    def take(
        self, prompt: Sequence[int], others: Sequence[tuple[Sequence[int], Cache]] = ()
    ) -> Cache | None:
        """A cache that has read the longest beginning of a prompt that is known, of those kept and
        of `others`, which go on. Of the prompt's last token the scores are needed: it is left.
        """
        begun = [(np.array(tokens[: cache.length]), cache) for tokens, cache in others]
        lengths = [min(shared(tokens, prompt), len(prompt) - 1) for tokens, _ in self.kept + begun]
        best = max(range(len(lengths)), key=lengths.__getitem__, default=0)
        if not lengths or lengths[best] < LEAST:
            return None
        room = len(prompt)
        _, cache = (self.kept + begun)[best]
        if best < len(self.kept):
            self.kept.append(self.kept.pop(best))
        return cache.begun(self.config, lengths[best], room)

    def trim(self, room: int) -> None:
        """Leave those longest not used, until the others fit into so many tokens."""
        while self.kept and sum(len(tokens) for tokens, _ in self.kept) > room:
            self.kept.pop(0)


def shared(one: Sequence[int] | np.ndarray, other: Sequence[int] | np.ndarray) -> int:
    """How many tokens two sequences begin with alike."""
    length = min(len(one), len(other))
    differ = np.flatnonzero(np.asarray(one[:length]) != np.asarray(other[:length]))
    return int(differ[0]) if len(differ) else length
