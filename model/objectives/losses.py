"""Cross-entropy of a linear LM head, a chunk of positions at a time.

The logits of a whole batch are the largest tensor of a small model's training step (B x T x V);
here they exist a chunk at a time.

Letters: N positions of a batch, C positions of a chunk, D width, V vocabulary.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from model.objectives.rows import IGNORED
from model.transformer import softcap

CHUNK_ELEMENTS = 2**22
"""Logits held at a time: 16 MiB in fp32, about what stays in a CPU's cache."""


class ChunkedCrossEntropy(torch.autograd.Function):
    """Summed cross-entropy of a linear LM head, without ever holding all its logits.

    The gradient of the sum with respect to a chunk's logits is softmax(logits) - onehot(target).
    It is known as soon as the logits are, so the forward pass turns it into the gradients of the
    hidden states and of the head at once, and the logits are dropped; the backward pass only
    scales them. The same three matrix products as the plain loss, and no recomputation
    (Hsu et al. 2024, Liger Kernel, section 3.2).

    With `z_loss` each target adds that times log^2 Z, Z being the sum of its exponentiated logits,
    which keeps log Z near 0 (Chowdhery et al. 2022, PaLM, section 5, training setup). Of each
    target `smoothing` is spread over all tokens alike (Szegedy et al. 2016, section 7).
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        targets_N: Tensor,
        cap: float | None,
        z_loss: float,
        smoothing: float,
        with_gradients: bool,
    ) -> tuple[Tensor, Tensor]:
        """The sum of the losses in nats, fp32 or wider, and the part of it that z-loss adds."""
        grad_hidden_ND = torch.empty_like(hidden_ND) if with_gradients else None
        grad_weight_VD = _accumulator(weight_VD) if with_gradients else None
        grad_bias_V = None if bias_V is None else _accumulator(bias_V)
        losses, penalties = [], []
        for rows in chunks(len(targets_N), len(weight_VD)):
            hidden_CD, kept_C1 = hidden_ND[rows], (targets_N[rows] != IGNORED)[:, None]
            # -100 is no class; `kept` takes out what class 0 would add.
            targets_C1 = targets_N[rows].clamp(min=0)[:, None]
            logits_CV = _at_least_fp32(softcap(F.linear(hidden_CD, weight_VD, bias_V), cap))
            probs_CV = logits_CV.softmax(-1)
            # The likeliest token's probability cannot underflow; the target's can.
            normaliser_C1 = logits_CV.amax(-1, keepdim=True) - probs_CV.amax(-1, keepdim=True).log()
            wanted_C1 = logits_CV.gather(1, targets_C1)
            if smoothing:
                mean_C1 = logits_CV.mean(-1, keepdim=True)
                wanted_C1 = (1 - smoothing) * wanted_C1 + smoothing * mean_C1
            losses.append((normaliser_C1 - wanted_C1) * kept_C1)
            if z_loss:
                penalties.append(z_loss * normaliser_C1.square() * kept_C1)
            if grad_hidden_ND is None or grad_weight_VD is None:
                continue
            if z_loss:
                # log^2 Z has the gradient 2 log Z softmax.
                probs_CV *= 1 + 2 * z_loss * normaliser_C1
            if smoothing:
                probs_CV -= smoothing / len(weight_VD)
            share_C1 = torch.full_like(normaliser_C1, smoothing - 1)
            grad_CV = probs_CV.scatter_add_(1, targets_C1, share_C1)
            if cap is not None:
                # tanh' = 1 - tanh^2, and the capped logits over the cap are that tanh.
                grad_CV *= 1 - (logits_CV / cap).square()
            # The products run in the network's type; the head's gradient is added up in fp32.
            grad_CV = grad_CV.to(hidden_ND.dtype)
            # What has no target is left out of the small factor of each product.
            grad_hidden_ND[rows] = (grad_CV @ weight_VD) * kept_C1
            _add_product(grad_weight_VD, grad_CV.T, hidden_CD * kept_C1)
            if grad_bias_V is not None:
                grad_bias_V += kept_C1[:, 0].to(grad_CV.dtype) @ grad_CV
        if grad_hidden_ND is not None and grad_weight_VD is not None:
            grad_weight_VD = grad_weight_VD.to(weight_VD.dtype)
            if bias_V is not None and grad_bias_V is not None:
                grad_bias_V = grad_bias_V.to(bias_V.dtype)
            ctx.save_for_backward(grad_hidden_ND, grad_weight_VD, grad_bias_V)
        total = torch.cat(losses).sum() if losses else hidden_ND.sum()
        penalty = torch.cat(penalties).sum() if penalties else torch.zeros_like(total)
        ctx.mark_non_differentiable(penalty)
        return total + penalty, penalty

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        """Scale what the forward pass worked out."""
        grad_hidden_ND, grad_weight_VD, grad_bias_V = ctx.saved_tensors
        scale, _ = grad_outputs
        grad_bias_V = None if grad_bias_V is None else grad_bias_V * scale
        return grad_hidden_ND * scale, grad_weight_VD * scale, grad_bias_V, *[None] * 5


def chunks(count: int, vocab_size: int) -> Iterator[slice]:
    """Cut `count` positions into slices whose logits fit in `CHUNK_ELEMENTS`."""
    size = max(1, CHUNK_ELEMENTS // vocab_size)
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a @ b, in one pass where all are of one type."""
    if total.dtype == a.dtype == b.dtype and not torch.is_autocast_enabled(total.device.type):
        total.addmm_(a, b)
    else:
        total += a @ b


def _accumulator(weight: Tensor) -> Tensor:
    return torch.zeros_like(weight, dtype=torch.promote_types(weight.dtype, torch.float32))


def _at_least_fp32(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))
