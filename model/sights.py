"""Who sees whom, told to a GPU's kernels without a mask of every pair.

`model.masks` says the same by a mask `[B, 1, T, T]`, which no flash attention takes. It is what a
CPU uses, and what these are held against. Of two ways the first that fits is taken:

- `Lengths`: documents end to end, by where they begin (PyTorch's variable-length attention: Dao
  2023, FlashAttention-2, or cuDNN's). Plain scores in half precision, with a window or without.
- `Blocks`: FlexAttention (Dong et al. 2024), which leaves out blocks of which nothing is seen. Also
  for prefixes, capped scores, and biases that go by the distance.

Letters: B rows, T positions, N documents of all rows, H heads, K key-value heads, E head dimension,
R distances, from 1 - T to T - 1.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from model.config import ModelConfig
from model.masks import Sight

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

LEAST_HEAD, MOST_HEAD = 16, 256
"""Head dimensions that the kernels have; variable-length attention wants multiples of 8."""


UNBLOCKED = ("disentangled", "relative_sinusoidal")
"""Positions whose scores depend on more than the distance."""


@dataclass(frozen=True)
class Lengths:
    """Tokens see their own document, and of it those up to `window` places before and behind them;
    -1 is without bound. `begins_N` is as `model.documents` has it.
    """

    begins_N: Tensor
    window: tuple[int, int]

    def attend(self, config: ModelConfig, q_BHTE: Tensor, k_BKTE: Tensor, v_BKTE: Tensor) -> Tensor:
        """softmax(q k' scale) v, `[B, H, T, E]`."""
        from torch.nn.attention.varlen import varlen_attn

        rows, length = q_BHTE.shape[0], q_BHTE.shape[2]
        dtype = half(q_BHTE.device.type) or v_BKTE.dtype
        q, k, v = (z.transpose(1, 2).flatten(0, 1).to(dtype) for z in (q_BHTE, k_BKTE, v_BKTE))
        # The longest document is told as the row, lest each length be compiled for.
        mixed_NHE = varlen_attn(
            q,
            k,
            v,
            self.begins_N,
            self.begins_N,
            length,
            length,
            scale=config.score_scale,
            window_size=self.window,
            enable_gqa=q_BHTE.shape[1] != k_BKTE.shape[1],
        )
        assert isinstance(mixed_NHE, Tensor)
        return mixed_NHE.unflatten(0, (rows, length)).transpose(1, 2)


@dataclass(frozen=True)
class Blocks:
    """Which blocks of keys a block of queries sees, and what is added to a score by the distance of
    its key, `[H, R]`.
    """

    mask: "BlockMask"
    by_distance_HR: Tensor | None = None

    @classmethod
    def of(
        cls,
        length: int,
        device: torch.device,
        *,
        causal: bool,
        window: int | None = None,
        documents_BT: Tensor | None = None,
        prefix_BT: Tensor | None = None,
        by_distance_HR: Tensor | None = None,
    ) -> "Blocks":
        """The same as `model.masks.self_sight`, with a bias."""
        if documents_BT is None and prefix_BT is None:
            return cls(_alike(length, device, causal, window), by_distance_HR)
        rows = len(documents_BT if prefix_BT is None else prefix_BT)  # pyrefly: ignore
        seen = _rule(causal, window, documents_BT, prefix_BT)
        return cls(_block_mask(seen, rows, length, device), by_distance_HR)

    def attend(self, config: ModelConfig, q_BHTE: Tensor, k_BKTE: Tensor, v_BKTE: Tensor) -> Tensor:
        """softmax(cap tanh(q k' scale / cap) + bias) v, `[B, H, T, E]`."""
        call = _compiled_flex() if q_BHTE.is_cuda else _flex()
        dtype = half(q_BHTE.device.type) or v_BKTE.dtype
        return call(
            *(z.to(dtype) for z in (q_BHTE, k_BKTE, v_BKTE)),
            score_mod=self.score(config.attention_softcap, q_BHTE.shape[2]),
            block_mask=self.mask,
            scale=config.score_scale,
            enable_gqa=q_BHTE.shape[1] != k_BKTE.shape[1],
        )

    def score(self, cap: float | None, length: int) -> Callable[..., Tensor] | None:
        """What becomes of a score; None where it stays as it is."""
        bias_HR = self.by_distance_HR
        if cap is None and bias_HR is None:
            return None

        def changed(
            score: Tensor, row: Tensor, head: Tensor, here: Tensor, there: Tensor
        ) -> Tensor:
            if cap is not None:
                score = cap * torch.tanh(score / cap)
            if bias_HR is not None:
                score = score + bias_HR[head, here - there + length - 1]
            return score

        return changed


Seen = Sight | Lengths | Blocks


def on_gpu(x: Tensor) -> bool:
    """Whether there are kernels for a tensor that need no mask."""
    return x.is_cuda


def kernel_sight(
    config: ModelConfig,
    x_BTD: Tensor,
    *,
    causal: bool,
    window: int | None,
    documents_BT: Tensor | None,
    prefix_BT: Tensor | None,
    begins_N: Tensor | None,
    by_distance_HR: Tensor | None,
    dropout: bool,
) -> Lengths | Blocks | None:
    """What tokens `[B, T, D]` on a GPU see of each other; None where a mask has to say it, as with
    dropout of the weights, or where PyTorch's own attention does without.
    """
    rows, length = x_BTD.shape[:2]
    window = None if window is None or window >= length else window
    fits = LEAST_HEAD <= config.head_dim <= MOST_HEAD
    if dropout or not fits or config.positions in UNBLOCKED:
        return None
    plain = by_distance_HR is None and config.attention_softcap is None and prefix_BT is None
    if plain and documents_BT is None and window is None:
        return None
    dtype = half(x_BTD.device.type) or x_BTD.dtype
    known = begins_N is not None or documents_BT is None
    if plain and known and dtype != torch.float32 and _flash(config):
        if begins_N is None:
            begins_N = _rows_alike(rows, length, x_BTD.device)
        before = -1 if window is None else window - 1
        return Lengths(begins_N, (before, 0 if causal else before))
    return Blocks.of(
        length,
        x_BTD.device,
        causal=causal,
        window=window,
        documents_BT=documents_BT,
        prefix_BT=prefix_BT,
        by_distance_HR=by_distance_HR,
    )


def _flash(config: ModelConfig) -> bool:
    return not config.latent and config.head_dim % 8 == 0


def half(device: str) -> torch.dtype | None:
    """What products are made in under autocast."""
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None


@functools.lru_cache(maxsize=8)
def _rows_alike(rows: int, length: int, device: torch.device) -> Tensor:
    """The begins of rows that are one document each."""
    return torch.arange(0, (rows + 1) * length, length, dtype=torch.int32, device=device)


@functools.lru_cache(maxsize=64)
def _alike(length: int, device: torch.device, causal: bool, window: int | None) -> "BlockMask":
    """The blocks that every row and step has alike."""
    return _block_mask(_rule(causal, window, None, None), None, length, device)


def _rule(
    causal: bool, window: int | None, documents_BT: Tensor | None, prefix_BT: Tensor | None
) -> Callable[..., Tensor]:
    """Whether a query sees a key, by their places in a row."""

    def seen(row: Tensor, head: Tensor, here: Tensor, there: Tensor) -> Tensor:
        found = here >= there if causal else here == here
        if prefix_BT is not None:
            found = found | (prefix_BT[row, here] & prefix_BT[row, there])
        if window is not None:
            found = found & ((here - there).abs() < window)
        if documents_BT is not None:
            found = found & (documents_BT[row, here] == documents_BT[row, there])
        return found

    return seen


def _block_mask(
    seen: Callable[..., Tensor], rows: int | None, length: int, device: torch.device
) -> "BlockMask":
    from torch.nn.attention.flex_attention import create_block_mask

    # Compiled, it never holds the mask of every pair.
    compiled = device.type == "cuda"
    return create_block_mask(seen, rows, None, length, length, device, _compile=compiled)


def _flex() -> Callable[..., Any]:
    from torch.nn.attention.flex_attention import flex_attention

    return flex_attention


@functools.cache
def _compiled_flex() -> Callable[..., Any]:
    return torch.compile(_flex(), dynamic=False)
