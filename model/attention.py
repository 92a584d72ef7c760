"""Self-attention: rotary positions, who sees whom, grouped-query heads and the key-value cache.

Vaswani et al. 2017, section 3.2; RoPE: Su et al. 2021; grouped queries: Ainslie et al. 2023.

Letters: B rows, T query positions, S key positions, D width, H query heads, K key-value heads,
E head dimension. `[B, T]` pairs of document numbers keep attention inside a document.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.config import ModelConfig, RopeScaling

Rotation = tuple[Tensor, Tensor]


class Attention(nn.Module):
    """Causal multi-head attention whose query, key and value projections are one matrix."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        heads = config.heads + 2 * config.kv_heads
        self.qkv = nn.Linear(config.width, heads * config.head_dim, bias=config.bias != "none")
        self.out = nn.Linear(
            config.heads * config.head_dim, config.width, bias=config.bias == "all"
        )
        if config.qk_norm:
            self.q_norm = nn.RMSNorm(config.head_dim, config.norm_epsilon)
            self.k_norm = nn.RMSNorm(config.head_dim, config.norm_epsilon)

    def forward(
        self,
        x_BTD: Tensor,
        rotation: Rotation | None,
        mask: Tensor | None,
        past: "LayerCache | None" = None,
    ) -> Tensor:
        """Mix values of earlier tokens into each token, `[B, T, D]`.

        `mask` is True where a query may look at a key, broadcastable to `[B, H, T, S]`; None is
        the plain causal triangle. `past` holds the keys and values of tokens already seen.
        """
        config = self.config
        heads_BTHE = self.qkv(x_BTD).unflatten(-1, (-1, config.head_dim))
        q_BTHE, k_BTKE, v_BTKE = heads_BTHE.split(
            [config.heads, config.kv_heads, config.kv_heads], 2
        )
        if config.qk_norm:
            q_BTHE, k_BTKE = self.q_norm(q_BTHE), self.k_norm(k_BTKE)
        if rotation is not None:
            q_BTHE, k_BTKE = rotate(q_BTHE, rotation), rotate(k_BTKE, rotation)
        q_BHTE, k_BKSE, v_BKSE = (z.transpose(1, 2) for z in (q_BTHE, k_BTKE, v_BTKE))
        if past is not None:
            k_BKSE, v_BKSE = past.append(k_BKSE, v_BKSE)
        attend = softcapped_attention if config.attention_softcap else scaled_attention
        mixed_BHTE = attend(config, q_BHTE, k_BKSE, v_BKSE, mask, self.training)
        return self.out(mixed_BHTE.transpose(1, 2).flatten(2))


def scaled_attention(
    config: ModelConfig,
    q_BHTE: Tensor,
    k_BKSE: Tensor,
    v_BKSE: Tensor,
    mask: Tensor | None,
    training: bool,
) -> Tensor:
    """softmax(q k' scale) v by PyTorch's fused kernels, flash attention where there is one."""
    return F.scaled_dot_product_attention(
        q_BHTE,
        k_BKSE,
        v_BKSE,
        attn_mask=mask,
        is_causal=mask is None,
        dropout_p=config.dropout if training else 0.0,
        scale=config.attention_scale,
        enable_gqa=config.kv_heads != config.heads,
    )


def softcapped_attention(
    config: ModelConfig,
    q_BHTE: Tensor,
    k_BKSE: Tensor,
    v_BKSE: Tensor,
    mask: Tensor | None,
    training: bool,
) -> Tensor:
    """softmax(cap tanh(q k' scale / cap)) v (Gemma 2), written out: no fused kernel caps scores."""
    cap = config.attention_softcap
    assert cap is not None
    groups = config.heads // config.kv_heads
    k_BHSE, v_BHSE = (z.repeat_interleave(groups, 1) for z in (k_BKSE, v_BKSE))
    if mask is None:
        mask = visible(q_BHTE.shape[2], k_BHSE.shape[2], q_BHTE.device)
    scale = config.attention_scale or 1 / math.sqrt(config.head_dim)
    scores_BHTS = cap * torch.tanh(q_BHTE @ k_BHSE.mT * scale / cap)
    weights_BHTS = scores_BHTS.masked_fill(~mask, float("-inf")).softmax(-1)
    return F.dropout(weights_BHTS, config.dropout, training) @ v_BHSE


def attention_mask(
    queries: int, documents_BS: Tensor | None, keys: int, window: int | None, device: torch.device
) -> Tensor | None:
    """Which of the `keys` each of the last `queries` positions may see; None: a plain triangle.

    A token sees itself and earlier tokens of its own document, at most `window - 1` of them.
    Padding (document 0) sees padding, so that no row of the softmax is empty.
    """
    if documents_BS is not None and bool((documents_BS == documents_BS[:, :1]).all()):
        documents_BS = None
    narrow = window is not None and window < keys
    if documents_BS is None and not narrow and queries == keys:
        return None
    seen_TS = visible(queries, keys, device, window)
    if documents_BS is None:
        return seen_TS
    same_BTS = documents_BS[:, -queries:, None] == documents_BS[:, None, :]
    return (same_BTS & seen_TS)[:, None]


def visible(queries: int, keys: int, device: torch.device, window: int | None = None) -> Tensor:
    """The causal triangle `[T, S]` of the last `queries` positions, cut to a band by `window`."""
    distance_TS = (
        torch.arange(keys - queries, keys, device=device)[:, None]
        - torch.arange(keys, device=device)[None, :]
    )
    seen_TS = distance_TS >= 0
    return seen_TS if window is None else seen_TS & (distance_TS < window)


def rotation(config: ModelConfig, positions_BT: Tensor, dtype: torch.dtype) -> Rotation:
    """Cosine and sine of position times frequency, each `[B, T, 1, E/2]` (Su et al. 2021, eq. 15).

    Angles are formed in fp32 whatever `dtype` is: bf16 cannot tell positions above 256 apart.
    """
    half = torch.arange(0, config.head_dim, 2, device=positions_BT.device, dtype=torch.float32)
    frequencies = config.rope_theta ** (-half / config.head_dim)
    if config.rope_scaling:
        frequencies = _stretch(frequencies, config.rope_scaling)
    angles_BT1E = (positions_BT[..., None].float() * frequencies)[..., None, :]
    return angles_BT1E.cos().to(dtype), angles_BT1E.sin().to(dtype)


def rotate(x_BTHE: Tensor, rotation: Rotation) -> Tensor:
    """Turn the pairs (x_i, x_{i + E/2}) by their angles; the pairing is the Hugging Face one."""
    cos, sin = rotation
    first, second = x_BTHE.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


def _stretch(frequencies: Tensor, scaling: RopeScaling) -> Tensor:
    turns = scaling.original_context * frequencies / (2 * math.pi)
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    keep = ((turns - low) / (high - low)).clamp(0, 1)
    return keep * frequencies + (1 - keep) * frequencies / scaling.factor


class LayerCache:
    """Keys and values of the tokens one layer has seen, `[B, K, S, E]` each."""

    def __init__(self) -> None:
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def append(self, k_BKTE: Tensor, v_BKTE: Tensor) -> tuple[Tensor, Tensor]:
        """Add new tokens; all keys and values so far."""
        if self.keys is not None and self.values is not None:
            k_BKTE = torch.cat((self.keys, k_BKTE), 2)
            v_BKTE = torch.cat((self.values, v_BKTE), 2)
        self.keys, self.values = k_BKTE, v_BKTE
        return k_BKTE, v_BKTE


class Cache:
    """What a network remembers between calls: a `LayerCache` each, and the document numbers."""

    def __init__(self, config: ModelConfig) -> None:
        self.layers = [LayerCache() for _ in range(config.depth)]
        self.documents_BS: Tensor | None = None

    def extend(self, documents_BT: Tensor) -> Tensor:
        """Add the document numbers of new tokens; those of all tokens so far, `[B, S]`."""
        if self.documents_BS is not None:
            documents_BT = torch.cat((self.documents_BS, documents_BT), 1)
        self.documents_BS = documents_BT
        return documents_BT

    def select(self, rows: Tensor) -> None:
        """Keep these rows in this order; a row named twice is copied (beam search)."""
        assert self.documents_BS is not None
        self.documents_BS = self.documents_BS[rows]
        for layer in self.layers:
            assert layer.keys is not None and layer.values is not None
            layer.keys, layer.values = layer.keys[rows], layer.values[rows]
