"""Attention whose scores know the distance between two tokens by vectors of their own.

Letters: B rows, T query positions, S key positions, D width, H heads, E head dimension, R distances
that a table has a vector for.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from model.attention import Attention, attend
from model.masks import Sight, distances


@dataclass(frozen=True)
class Relative:
    """A vector for each distance, and which of them stands between a query and a key."""

    states_RD: Tensor
    rows_TS: Tensor


class DisentangledAttention(Attention):
    """Scores of content to content, content to position and position to content (He et al. 2021,
    DeBERTa, equation 4, with the projections of version 2, which contents and distances share).

    The three sums are divided by sqrt(3 E).
    """

    def forward(  # pyrefly: ignore[bad-override]
        self, x_BTD: Tensor, sight: Sight, relative: Relative, past: None = None
    ) -> Tensor:
        """Mix values of the tokens that are seen into each token, `[B, T, D]`."""
        q_BHTE, k_BHSE, v_BHSE = self._heads(x_BTD)
        states_RD = F.dropout(relative.states_RD, self.config.dropout, self.training)
        q_HRE, k_HRE, _ = (part[0] for part in self._heads(states_RD[None]))
        rows_BHTS = relative.rows_TS.expand(*q_BHTE.shape[:2], -1, -1)
        to_position = (q_BHTE @ k_HRE.mT).gather(-1, rows_BHTS)
        to_content = (k_BHSE @ q_HRE.mT).gather(-1, rows_BHTS.mT).mT
        seen = sight.biased((to_position + to_content) * self.config.score_scale)
        mixed_BHTE = attend(self.config, q_BHTE, k_BHSE, v_BHSE, seen, self.training)
        return self.out(mixed_BHTE.transpose(1, 2).flatten(2))

    def _heads(self, x_BTD: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values, each `[B, H, T, E]`."""
        heads_BHTE = self.qkv(x_BTD).unflatten(-1, (-1, self.config.head_dim)).transpose(1, 2)
        return heads_BHTE.chunk(3, 1)


def bucketed(states_RD: Tensor, length: int, furthest: int) -> Relative:
    """The vectors of the distances in a row of `length` tokens.

    Half of each direction's buckets hold one distance each; the others grow logarithmically up to
    `furthest` (He et al. 2021, released code of version 2).
    """
    half = len(states_RD) // 2
    exact = half // 2
    distance_TS = distances(length, length, states_RD.device)
    growth = (distance_TS.abs().clamp(min=1) / exact).log()
    growth = growth / torch.log(torch.tensor((furthest - 1) / exact))
    far_TS = (torch.ceil(growth * (exact - 1)) + exact) * distance_TS.sign()
    near = distance_TS.abs() <= exact
    rows_TS = (distance_TS.where(near, far_TS.long()) + half).clamp(0, 2 * half - 1)
    first, last = int(rows_TS[0, -1]), int(rows_TS[-1, 0])  # all others lie in between
    return Relative(states_RD[first : last + 1], rows_TS - first)
