"""Attention whose scores know the distance between two tokens by vectors of their own.

Letters: B rows, T query positions, S key positions, D width, H heads, E head dimension, R distances
that a table has a vector for.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.attention import Attention, attend
from model.config import ModelConfig
from model.masks import Sight, distances
from model.positions import sinusoids


@dataclass(frozen=True)
class Relative:
    """A vector for each distance, and which of them stands between a query and a key; also 1 where
    the two are of different segments. The latter two are broadcastable to `[B, H, T, S]`.
    """

    states_RD: Tensor
    rows: Tensor
    apart: Tensor | None = None


class RelativeAttention(Attention):
    """What the two below share: scores of contents plus what `biases` adds to them."""

    def forward(  # pyrefly: ignore[bad-override]
        self, x_BTD: Tensor, sight: Sight, relative: Relative, past: None = None
    ) -> Tensor:
        """Mix values of the tokens that are seen into each token, `[B, T, D]`."""
        q_BHTE, k_BHSE, v_BHSE = self._heads(x_BTD)
        states_RD = F.dropout(relative.states_RD, self.config.dropout, self.training)
        q_BHTE, bias_BHTS = self.biases(q_BHTE, k_BHSE, states_RD, relative)
        seen = sight.biased(bias_BHTS * self.config.score_scale)
        mixed_BHTE = attend(self.config, q_BHTE, k_BHSE, v_BHSE, seen, self.training)
        return self.out(mixed_BHTE.transpose(1, 2).flatten(2))

    def biases(
        self, q_BHTE: Tensor, k_BHSE: Tensor, states_RD: Tensor, relative: Relative
    ) -> tuple[Tensor, Tensor]:
        """The queries that meet the keys, and what is added to their products before scaling."""
        raise NotImplementedError

    def _heads(self, x_BTD: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values, each `[B, H, T, E]`."""
        return _split(self.qkv(x_BTD), self.config).chunk(3, 1)


class DisentangledAttention(RelativeAttention):
    """Scores of content to content, content to position and position to content (He et al. 2021,
    DeBERTa, equation 4, with the projections of version 2, which contents and distances share).

    The three sums are divided by sqrt(3 E).
    """

    def biases(
        self, q_BHTE: Tensor, k_BHSE: Tensor, states_RD: Tensor, relative: Relative
    ) -> tuple[Tensor, Tensor]:
        """Content to position, and position to content."""
        q_HRE, k_HRE, _ = (part[0] for part in self._heads(states_RD[None]))
        rows_BHTS = relative.rows.expand(*q_BHTE.shape[:2], -1, -1)
        to_position = (q_BHTE @ k_HRE.mT).gather(-1, rows_BHTS)
        to_content = (k_BHSE @ q_HRE.mT).gather(-1, rows_BHTS.mT).mT
        return q_BHTE, to_position + to_content


class SinusoidalAttention(RelativeAttention):
    """Scores of contents, of a content to a distance and to a segment, each with a bias of the
    query (Dai et al. 2019, Transformer-XL, section 3.3; Yang et al. 2019, XLNet, section 2.5).

    A distance is a sinusoid behind a matrix. A segment is the query's own or another; the score of
    its own, which a softmax would not tell from none, is left out.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        size = config.heads * config.head_dim
        self.distance = nn.Linear(config.width, size, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(size))
        self.distance_bias = nn.Parameter(torch.zeros(size))
        if config.segments:
            self.segment_bias = nn.Parameter(torch.zeros(size))
            self.segment_embedding = nn.Embedding(config.segments, size)

    def biases(
        self, q_BHTE: Tensor, k_BHSE: Tensor, states_RD: Tensor, relative: Relative
    ) -> tuple[Tensor, Tensor]:
        """Content to distance, and to segment."""
        config = self.config
        distance_HRE = _split(self.distance(states_RD), config)
        bias_HE, to_content_HE = (
            _split(bias[None], config) for bias in (self.distance_bias, self.content_bias)
        )
        rows_BHTS = relative.rows.expand(*q_BHTE.shape[:2], -1, -1)
        scores = ((q_BHTE + bias_HE) @ distance_HRE.mT).gather(-1, rows_BHTS)
        if config.segments:
            assert relative.apart is not None
            own, other = _split(self.segment_embedding.weight, config).unbind(1)
            asking_BHTE = q_BHTE + _split(self.segment_bias[None], config)
            scores = scores + asking_BHTE @ (other - own)[:, :, None] * relative.apart
        return q_BHTE + to_content_HE, scores


def _split(x: Tensor, config: ModelConfig) -> Tensor:
    """Numbers `[..., T, H E]` by heads, `[..., H, T, E]`."""
    return x.unflatten(-1, (-1, config.head_dim)).transpose(-3, -2)


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


def measured(positions_BT: Tensor, segments_BT: Tensor | None, like: Tensor) -> Relative:
    """A sinusoid of each distance between tokens at these positions, sines first; by `like` in type
    and, of its last dimension, in width.
    """
    furthest = int(positions_BT.max() - positions_BT.min())
    distance_R = torch.arange(-furthest, furthest + 1, device=like.device)
    states_RD = sinusoids(distance_R[None], like.shape[-1])[0]
    states_RD = torch.cat((states_RD[:, 0::2], states_RD[:, 1::2]), -1).to(like.dtype)
    apart = like.new_zeros(1)
    if segments_BT is not None:
        apart = (segments_BT[:, None, :, None] != segments_BT[:, None, None, :]).to(like.dtype)
    between = positions_BT[:, None, :, None] - positions_BT[:, None, None, :]
    return Relative(states_RD, between + furthest, apart)
