"""GPU kernels written out, to run on a CPU what a GPU is told."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from model.sights import Blocks


def varlen(
    q: Tensor, k: Tensor, v: Tensor, begins_q: Tensor, begins_k: Tensor, most_q: int, most_k: int,
    *, scale: float | None, window_size: tuple[int, int], enable_gqa: bool,
) -> Tensor:  # fmt: skip
    """PyTorch's variable-length attention, sequence by sequence, as its documentation has it."""
    assert begins_q.dtype == torch.int32 and torch.equal(begins_q, begins_k)
    found = []
    for begin, end in zip(begins_q[:-1].tolist(), begins_q[1:].tolist(), strict=True):
        assert end - begin <= min(most_q, most_k)
        if begin == end:
            continue
        before, after = (end - begin if n < 0 else n for n in window_size)
        place = torch.arange(end - begin)
        back = place[:, None] - place
        parts = (z[begin:end].transpose(0, 1)[None] for z in (q, k, v))
        mixed = F.scaled_dot_product_attention(
            *parts,
            attn_mask=(back <= before) & (back >= -after),
            scale=scale,
            enable_gqa=enable_gqa,
        )
        found.append(mixed[0].transpose(0, 1))
    return torch.cat(found)


def flex(
    q: Tensor, k: Tensor, v: Tensor, *, score_mod: Any, block_mask: Any, scale: float | None,
    enable_gqa: bool,
) -> Tensor:  # fmt: skip
    """FlexAttention by every score, which unlike PyTorch's has gradients on a CPU too."""
    rows, heads, length, size = q.shape
    groups = heads // k.shape[1]
    k, v = (z.repeat_interleave(groups, 1) for z in (k, v))
    at = [
        torch.arange(n).view([-1 if place == d else 1 for d in range(4)])
        for place, n in enumerate((rows, heads, length, length))
    ]
    scores = q @ k.mT * (scale or size**-0.5)
    if score_mod is not None:
        scores = score_mod(scores, *at)
    seen = block_mask.mask_mod(*at)
    return scores.masked_fill(~seen, -torch.inf).softmax(-1) @ v


def use(monkeypatch: Any) -> None:
    """Let networks on a CPU be told what those on a GPU are."""
    monkeypatch.setattr("model.sights.on_gpu", lambda x: True)
    monkeypatch.setattr("model.stack.on_gpu", lambda x: True)
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", varlen)
    monkeypatch.setattr("model.sights._flex", lambda: flex)


def blocks_seen(blocks: Blocks, length: int) -> Tensor:
    """The pairs `[B, T, T]` that a kernel looks into, block by block."""
    seen = blocks.mask.to_dense()[:, 0].bool()
    size = blocks.mask.BLOCK_SIZE[0]
    return seen.repeat_interleave(size, 1).repeat_interleave(size, 2)[:, :length, :length]
