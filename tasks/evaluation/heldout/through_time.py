"""How far back through time a loss reaches: its gradients by the tokens before the last one.

Each step back multiplies the gradient by the derivative of a state by the one before. Where that is
small a network learns nothing of what is far back, whatever it could remember (Bengio et al. 1994;
Hochreiter 1991); gates let it be 1.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from model.transformer import Transformer
from tasks.tokens.loader import Batch

ROWS = 64


def gradient_norms(network: Transformer, batches: Iterator[Batch], device: str) -> dict[str, Any]:
    """The mean norm of the gradient of the last target's loss by the embedding of the token at each
    distance before it, over that at distance 0; of the windows that are one document.

    `cell`, `windows`, and `norms` by distance; none where no window is one document.
    """
    recurrent, total, count = network.config.recurrent, torch.zeros(0), 0
    assert recurrent is not None
    for batch in batches:
        whole_B = torch.from_numpy((batch["documents"] == 1).all(1))
        inputs_BT = torch.from_numpy(batch["inputs"])[whole_B]
        targets_B = torch.from_numpy(batch["targets"])[whole_B, -1]
        if len(inputs_BT):
            norms_BT = _norms(network, inputs_BT.to(device), targets_B.to(device)).cpu()
            total = norms_BT.sum(0) + (total if count else 0)
            count += len(norms_BT)
        if count >= ROWS:
            break
    norms = (total / total[:1]).tolist()
    return {"cell": recurrent.cell, "windows": count, "norms": norms}


@torch.enable_grad()
def _norms(network: Transformer, inputs_BT: Tensor, targets_B: Tensor) -> Tensor:
    """The norm at each distance, `[B, T]`."""
    embedded_BTD = network.embed(inputs_BT).detach().requires_grad_()
    # cuDNN has no gradients of a network that is not in training, which would truncate them.
    with torch.backends.cudnn.flags(enabled=False):
        scores_BV = network.logits(network.run(embedded_BTD)[:, -1]).float()
        loss = F.cross_entropy(scores_BV, targets_B, reduction="sum")
        (gradient_BTD,) = torch.autograd.grad(loss, embedded_BTD)
    return gradient_BTD.norm(dim=-1).flip(1)
