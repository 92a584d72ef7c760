"""What attention weighs: the weights of every layer and head for one text, as they are mixed.

    maps = attention_maps(network, lambda: network(inputs_BT))

Letters: B rows, T query positions, S key positions, H heads.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from model import attention
from model.attention import Attention, CrossAttention, attend


@torch.no_grad()
def attention_maps(network: nn.Module, read: Callable[[], object]) -> list[tuple[str, Tensor]]:
    """The weights `[B, H, T, S]` of each attention with the name of its module, in the order in
    which they are mixed while `read` runs; layers that are one come as often as they are passed.

    Every row sums to 1. Latent attention leaves none.
    """
    found: list[tuple[str, Tensor]] = []
    names: list[str] = [""]

    def watch(config: Any, q_BHTE: Tensor, k_BKSE: Tensor, sight: Any) -> None:
        # Values that are one-hot come out as the weights they are mixed with.
        rows, heads, keys = k_BKSE.shape[:3]
        one_hot = torch.eye(keys, dtype=k_BKSE.dtype, device=k_BKSE.device)
        attention.watcher = None
        mixed = attend(config, q_BHTE, k_BKSE, one_hot.expand(rows, heads, -1, -1), sight, False)
        attention.watcher = watch
        found.append((names[-1], mixed.cpu()))

    hooks = [
        module.register_forward_pre_hook(lambda *_, name=name: names.append(name))
        for name, module in network.named_modules()
        if isinstance(module, Attention | CrossAttention)
    ]
    attention.watcher = watch
    try:
        read()
    finally:
        attention.watcher = None
        for hook in hooks:
            hook.remove()
    return found
