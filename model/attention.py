"""Self- and cross-attention with heads that may share keys and values.

Vaswani et al. 2017, section 3.2; grouped queries: Ainslie et al. 2023; one key-value head for all:
Shazeer 2019.

Letters: B rows, T query positions, S key positions, D width, H query heads, K key-value heads,
E head dimension.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.cache import LayerCache
from model.config import ModelConfig
from model.context_parallel import ContextGroup, SplitsContext
from model.masks import Sight
from model.norms import RMSNorm
from model.positions import Rotation, rotate
from model.ragged import RaggedLayer, attend_past
from model.sights import Seen


class Attention(nn.Module, SplitsContext):
    """Multi-head self-attention whose query, key and value projections are one matrix."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        heads = config.heads + 2 * config.kv_heads
        self.qkv = nn.Linear(config.width, heads * config.head_dim, bias=config.qkv_bias)
        self.out = nn.Linear(
            config.heads * config.head_dim, config.width, bias=config.attention_bias
        )
        if config.qk_norm != "none":
            queries, keys = (n if config.qk_norm == "all" else 1 for n in _counts(config))
            self.q_norm = RMSNorm(queries * config.head_dim, config.norm_epsilon)
            self.k_norm = RMSNorm(keys * config.head_dim, config.norm_epsilon)

    def forward(
        self,
        x_BTD: Tensor,
        sight: Seen | list[Sight],
        rotation: Rotation | None = None,
        past: LayerCache | RaggedLayer | None = None,
    ) -> Tensor:
        """Mix values of the tokens that are seen into each token, `[B, T, D]`.

        `past` holds the keys and values of tokens already read, and takes those of these.
        """
        config = self.config
        heads_BTHE = self.qkv(x_BTD).unflatten(-1, (-1, config.head_dim))
        qk_BTHE, v_BTKE = heads_BTHE.split([config.heads + config.kv_heads, config.kv_heads], 2)
        if config.qk_norm != "none":
            parts = zip((self.q_norm, self.k_norm), qk_BTHE.split(_counts(config), 2), strict=True)
            qk_BTHE = torch.cat([self._normed(norm, part) for norm, part in parts], 2)
        if rotation is not None:
            qk_BTHE = rotate(qk_BTHE, rotation)
        if self.context_group is not None:
            assert not isinstance(sight, list)
            return self.out(self._shared(qk_BTHE, v_BTKE, sight, self.context_group))
        q_BTHE, k_BTKE = qk_BTHE.split(_counts(config), 2)
        return self.out(attend_past(self._mix, past, sight, q_BTHE, k_BTKE, v_BTKE).flatten(2))

    def _mix(self, q_BTHE: Tensor, sight: Seen, k_BKSE: Tensor, v_BKSE: Tensor) -> Tensor:
        """The mixed values of every head, `[B, T, H, E]`."""
        q_BHTE = q_BTHE.transpose(1, 2)
        return attend(self.config, q_BHTE, k_BKSE, v_BKSE, sight, self.training).transpose(1, 2)

    def _normed(self, norm: RMSNorm, x_BTHE: Tensor) -> Tensor:
        """Each head normed, or all of a token's together."""
        if self.config.qk_norm == "head":
            return norm(x_BTHE)
        return norm(x_BTHE.flatten(2)).view_as(x_BTHE)

    def _shared(
        self, qk_BTHE: Tensor, v_BTKE: Tensor, sight: Seen, context_group: ContextGroup
    ) -> Tensor:
        """The mixed values of this process's positions, of which others have the rest."""
        parts = *qk_BTHE.split([self.config.heads, self.config.kv_heads], 2), v_BTKE
        q_BHTE, k_BKSE, v_BKSE = (context_group.by_heads(part).transpose(1, 2) for part in parts)
        mixed_BHTE = attend(self.config, q_BHTE, k_BKSE, v_BKSE, sight, self.training)
        return context_group.by_positions(mixed_BHTE.transpose(1, 2)).flatten(2)


class CrossAttention(nn.Module):
    """Attention of a decoder's tokens to an encoder's states, which know no order of their own."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        biased = config.qkv_bias
        keys, queries = (n * config.head_dim for n in (config.kv_heads, config.heads))
        self.query = nn.Linear(config.width, queries, bias=biased)
        self.kv = nn.Linear(config.width, 2 * keys, bias=biased)
        self.out = nn.Linear(queries, config.width, bias=config.attention_bias)

    def forward(
        self, x_BTD: Tensor, memory_BSD: Tensor, sight: Sight, past: LayerCache | None = None
    ) -> Tensor:
        """Mix values of the encoder's states into each token, `[B, T, D]`.

        With `past`, keys and values are made of the first `memory_BSD` and kept.
        """
        q_BHTE = self._heads(self.query(x_BTD))
        if past is None or past.memory is None:
            k_BKSE, v_BKSE = self._heads(self.kv(memory_BSD)).chunk(2, 1)
            if past is not None:
                past.memory = k_BKSE.contiguous(), v_BKSE.contiguous()
        else:
            k_BKSE, v_BKSE = past.memory
        mixed_BHTE = attend(self.config, q_BHTE, k_BKSE, v_BKSE, sight, self.training)
        return self.out(mixed_BHTE.transpose(1, 2).flatten(2))

    def _heads(self, x_BTD: Tensor) -> Tensor:
        return x_BTD.unflatten(-1, (-1, self.config.head_dim)).transpose(1, 2)


def _counts(config: ModelConfig) -> list[int]:
    """Heads of queries, and of keys."""
    return [config.heads, config.kv_heads]


watcher: Callable[[ModelConfig, Tensor, Tensor, Seen], None] | None = None
"""Told of all queries and keys while it is there (`model.attention_maps`)."""


def attend(
    config: ModelConfig,
    q_BHTE: Tensor,
    k_BKSE: Tensor,
    v_BKSE: Tensor,
    sight: Seen,
    training: bool,
) -> Tensor:
    """softmax(q k' scale) v, `[B, H, T, E]`: H / K query heads to each key-value head."""
    if watcher is not None:
        watcher(config, q_BHTE, k_BKSE, sight)
    if not isinstance(sight, Sight):
        return sight.attend(config, q_BHTE, k_BKSE, v_BKSE)
    if config.attention_softcap is not None:
        return _softcapped(config, q_BHTE, k_BKSE, v_BKSE, sight, training)
    heads, queries, kv_heads = q_BHTE.shape[1], q_BHTE.shape[2], k_BKSE.shape[1]
    mask = sight.mask
    if queries == 1 and heads != kv_heads:
        # The queries of a group look at the same keys, like so many positions of one head.
        q_BHTE = q_BHTE.unflatten(1, (kv_heads, -1)).squeeze(3)
        if mask is not None and mask.ndim == 4 and mask.shape[1] == heads:
            mask = mask.unflatten(1, (kv_heads, -1)).squeeze(3)
    if mask is not None and mask.dtype != torch.bool:
        # PyTorch takes a mask of numbers in the queries' type alone.
        mask = mask.to(q_BHTE.dtype)
    mixed = F.scaled_dot_product_attention(
        q_BHTE,
        k_BKSE,
        v_BKSE,
        attn_mask=mask,
        is_causal=sight.causal,
        dropout_p=config.dropout if training else 0.0,
        scale=config.score_scale,
        enable_gqa=q_BHTE.shape[1] != kv_heads,
    )
    return mixed.flatten(1, 2).unsqueeze(2) if queries == 1 else mixed


def _softcapped(
    config: ModelConfig,
    q_BHTE: Tensor,
    k_BKSE: Tensor,
    v_BKSE: Tensor,
    sight: Sight,
    training: bool,
) -> Tensor:
    """softmax(cap tanh(q k' scale / cap)) v (Gemma 2), written out: no fused kernel caps scores."""
    cap = config.attention_softcap
    assert cap is not None
    groups = q_BHTE.shape[1] // k_BKSE.shape[1]
    k_BHSE, v_BHSE = (z.repeat_interleave(groups, 1) for z in (k_BKSE, v_BKSE))
    scores_BHTS = cap * torch.tanh(q_BHTE @ k_BHSE.mT * config.score_scale / cap)
    # After the cap, which would make -inf a finite score.
    mask = sight.written_out(q_BHTE.shape[2], k_BHSE.shape[2], scores_BHTS.device)
    if mask is not None and mask.dtype == torch.bool:
        scores_BHTS = scores_BHTS.masked_fill(~mask, -math.inf)
    elif mask is not None:
        scores_BHTS = scores_BHTS + mask
    return F.dropout(scores_BHTS.softmax(-1), config.dropout, training) @ v_BHSE
