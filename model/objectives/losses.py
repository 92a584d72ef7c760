"""Cross-entropy of a linear LM head, a chunk of positions at a time.

The logits of a whole batch are the largest tensor of a small model's training step (B x T x V);
here they exist a chunk at a time.

Letters: N positions of a batch, C positions of a chunk, D width, V vocabulary.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from model.head_parts import softcap
from model.objectives.rows import IGNORED

CHUNK_ELEMENTS, GPU_CHUNK_ELEMENTS = 2**22, 2**28
"""Logits held at a time: 16 MiB in fp32, about what stays in a CPU's cache; and 1 GiB, which keeps
a GPU busy.
"""
GPU_CHUNK_ROWS = 4096
"""Positions of a chunk at least, on a GPU: its products are then bound by arithmetic, and not by
the head's gradient, which each chunk reads and writes whole.
"""


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
        of_chunk = _compiled() if hidden_ND.is_cuda else _of_chunk
        how = Scoring(cap, z_loss, smoothing)
        for rows in chunks(len(targets_N), len(weight_VD), hidden_ND.device):
            hidden_CD, kept_C1 = hidden_ND[rows], (targets_N[rows] != IGNORED)[:, None]
            scores_CV = F.linear(hidden_CD, weight_VD, bias_V)
            losses_C1, penalties_C1, grad_CV = of_chunk(
                scores_CV, targets_N[rows], kept_C1, how, with_gradients
            )
            losses.append(losses_C1)
            if penalties_C1 is not None:
                penalties.append(penalties_C1)
            if grad_hidden_ND is None or grad_weight_VD is None or grad_CV is None:
                continue
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


class Scoring(NamedTuple):
    """How a chunk's scores become losses: as the arguments of the loss say."""

    cap: float | None
    z_loss: float
    smoothing: float


Scored = tuple[Tensor, Tensor | None, Tensor | None]


def _of_chunk(
    scores_CV: Tensor, targets_C: Tensor, kept_C1: Tensor, how: Scoring, with_gradients: bool
) -> Scored:
    """The losses of a chunk, what z-loss adds to each, and the gradient of their sum by the scores
    that come out of the head's product.
    """
    # -100 is no class; `kept` takes out what class 0 would add.
    targets_C1 = targets_C.clamp(min=0)[:, None]
    logits_CV = _at_least_fp32(softcap(scores_CV, how.cap))
    probs_CV = logits_CV.softmax(-1)
    # The likeliest token's probability cannot underflow; the target's can.
    normaliser_C1 = logits_CV.amax(-1, keepdim=True) - probs_CV.amax(-1, keepdim=True).log()
    wanted_C1 = logits_CV.gather(1, targets_C1)
    if how.smoothing:
        mean_C1 = logits_CV.mean(-1, keepdim=True)
        wanted_C1 = (1 - how.smoothing) * wanted_C1 + how.smoothing * mean_C1
    losses_C1, penalties_C1 = (normaliser_C1 - wanted_C1) * kept_C1, None
    if how.z_loss:
        penalties_C1 = how.z_loss * normaliser_C1.square() * kept_C1
    if not with_gradients:
        return losses_C1, penalties_C1, None
    if how.z_loss:
        # log^2 Z has the gradient 2 log Z softmax.
        probs_CV *= 1 + 2 * how.z_loss * normaliser_C1
    if how.smoothing:
        probs_CV -= how.smoothing / logits_CV.shape[1]
    share_C1 = torch.full_like(normaliser_C1, how.smoothing - 1)
    grad_CV = probs_CV.scatter_add_(1, targets_C1, share_C1)
    if how.cap is not None:
        # tanh' = 1 - tanh^2, and the capped logits over the cap are that tanh.
        grad_CV *= 1 - (logits_CV / how.cap).square()
    return losses_C1, penalties_C1, grad_CV


@functools.cache
def _compiled() -> Callable[..., Scored]:
    """The same in a few passes over the scores, where each of a dozen would go to memory."""
    return torch.compile(_of_chunk, dynamic=False)


def chunks(count: int, vocab_size: int, device: torch.device) -> Iterator[slice]:
    """Cut `count` positions into slices whose logits are as many as suits the device."""
    if device.type == "cuda":
        size = max(GPU_CHUNK_ROWS, GPU_CHUNK_ELEMENTS // vocab_size)
    else:
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
