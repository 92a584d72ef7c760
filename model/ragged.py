"""Rows of different lengths through a network at once, their tokens end to end, without padding.

    caches = [Cache(config), Cache(config)]
    ragged = RaggedCache(caches, counts=[300, 1])          # a prompt's tokens, another row's next
    hidden_1ND = network(tokens_1N, None, ragged.positions_1N, ragged)

All that a network does to one token alone, which is all of its matrices, it does to the N tokens of
all rows together: a weight is read once a step. Attention alone goes row by row, each over its own
keys and values and no longer than it is. So a row's scores do not depend on how long others are.

Letters: N tokens of all rows, R rows.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from model.cache import Cache, LayerCache
from model.masks import Sight, self_sight

Bias = Callable[[int, int, torch.device], Tensor | None]


class RaggedLayer:
    """One layer of every row, and which of the N tokens are whose."""

    def __init__(self, layers: list[LayerCache], spans: list[tuple[int, int]]) -> None:
        self.layers, self.spans = layers, spans


class RaggedCache:
    """The caches of some rows, each of which takes its number of the next tokens."""

    def __init__(
        self, caches: Sequence[Cache], counts: Sequence[int], device: torch.device
    ) -> None:
        self.seen = [cache.length for cache in caches]
        self.counts = list(counts)
        spans = list(pairwise(accumulate(counts, initial=0)))
        depth = len(caches[0].layers)
        self.layers = [RaggedLayer([c.layers[i] for c in caches], spans) for i in range(depth)]
        places = [torch.arange(s, s + n) for s, n in zip(self.seen, self.counts, strict=True)]
        self.positions_1N = torch.cat(places)[None].to(device)

    def sights(self, window: int | None, bias: Bias, device: torch.device) -> list[Sight]:
        """What the new tokens of each row see of it, in layers of this window."""
        found = []
        for seen, count in zip(self.seen, self.counts, strict=True):
            sight = self_sight(count, seen + count, device, window=window)
            bias_HTS = bias(count, seen + count, device)
            found.append(sight if bias_HTS is None else sight.biased(bias_HTS))
        return found


def by_row(
    mix: Callable[..., Tensor],
    past: LayerCache | RaggedLayer | None,
    sight: Sight | list[Sight],
    *parts: Tensor,
) -> Tensor:
    """`mix(*parts, sight, past)`, of a ragged batch row by row; `parts` are `[B, T, ...]`."""
    if not isinstance(past, RaggedLayer):
        return mix(*parts, sight, past)
    assert isinstance(sight, list)
    rows = zip(past.spans, sight, past.layers, strict=True)
    mixed = [mix(*(part[:, b:e] for part in parts), one, layer) for (b, e), one, layer in rows]
    return torch.cat(mixed, 1)
