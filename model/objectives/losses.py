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
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        targets_N: Tensor,
        cap: float | None,
        with_gradients: bool,
    ) -> Tensor:
        """The sum of the losses in nats, fp32 or wider."""
        grad_hidden_ND = torch.empty_like(hidden_ND) if with_gradients else None
        grad_weight_VD = _accumulator(weight_VD) if with_gradients else None
        grad_bias_V = None if bias_V is None else _accumulator(bias_V)
        losses = []
        for rows in chunks(len(targets_N), len(weight_VD)):
            hidden_CD, kept_C = hidden_ND[rows], targets_N[rows] != IGNORED
            targets_C1 = targets_N[rows].clamp(min=0)[:, None]
            logits_CV = _at_least_fp32(softcap(F.linear(hidden_CD, weight_VD, bias_V), cap))
            log_probs_CV = logits_CV.log_softmax(-1)
            losses.append(-log_probs_CV.gather(1, targets_C1)[:, 0] * kept_C)
            if grad_hidden_ND is None or grad_weight_VD is None:
                continue
            grad_CV = log_probs_CV.exp_()
            grad_CV.scatter_add_(1, targets_C1, -torch.ones_like(grad_CV[:, :1]))
            grad_CV *= kept_C[:, None]
            if cap is not None:
                grad_CV *= 1 - (logits_CV / cap).square()
            grad_CV = grad_CV.to(hidden_ND.dtype)
            grad_hidden_ND[rows] = grad_CV @ weight_VD
            grad_weight_VD += grad_CV.T @ hidden_CD
            if grad_bias_V is not None:
                grad_bias_V += grad_CV.sum(0)
        if grad_hidden_ND is not None and grad_weight_VD is not None:
            grad_weight_VD = grad_weight_VD.to(weight_VD.dtype)
            if bias_V is not None and grad_bias_V is not None:
                grad_bias_V = grad_bias_V.to(bias_V.dtype)
            ctx.save_for_backward(grad_hidden_ND, grad_weight_VD, grad_bias_V)
        return torch.cat(losses).sum() if losses else hidden_ND.sum()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        """Scale what the forward pass worked out."""
        grad_hidden_ND, grad_weight_VD, grad_bias_V = ctx.saved_tensors
        (scale,) = grad_outputs
        grad_bias_V = None if grad_bias_V is None else grad_bias_V * scale
        return grad_hidden_ND * scale, grad_weight_VD * scale, grad_bias_V, None, None, None


def chunks(count: int, vocab_size: int) -> Iterator[slice]:
    """Cut `count` positions into slices whose logits fit in `CHUNK_ELEMENTS`."""
    size = max(1, CHUNK_ELEMENTS // vocab_size)
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def _accumulator(weight: Tensor) -> Tensor:
    return torch.zeros_like(weight, dtype=torch.promote_types(weight.dtype, torch.float32))


def _at_least_fp32(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))
