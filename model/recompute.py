"""Activation checkpointing: what of a block's forward pass is kept, and what is computed again.

- `whole`: what goes into a block. A third more arithmetic, far less memory (Chen et al. 2016).
- `selective`: also what matrix products and attention make, so that what is done again costs next
  to nothing (Korthikanti et al. 2023, section 5, the other way round).
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from model.experts import Router, passes
from model.flops import Recompute

Pass = AbstractContextManager[Any]
KEPT = ("aten::mm", "aten::addmm", "aten::bmm", "aten::_grouped_mm", "torch_attn::_varlen_attn")
ATTENTION = "attention"
"""What the names of PyTorch's own attention have in them."""


def recomputed(how: Recompute, block: nn.Module, *args: Any) -> Any:
    """What a block makes of its input, so that its backward pass does some of it again."""
    routed = any(isinstance(part, Router) for part in block.modules())
    more: dict[str, Any] = {}
    if how == "selective":
        plain = partial(create_selective_checkpoint_contexts, _policy)
        more["context_fn"] = partial(_both, plain, block) if routed else plain
    elif routed:
        more["context_fn"] = partial(passes, block)
    return checkpoint(block, *args, use_reentrant=False, **more)


def _policy(_: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    name = op.name().partition(".")[0]
    kept = name in KEPT or (ATTENTION in name and "backward" not in name)
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE


def _both(selective: Callable[[], tuple[Pass, Pass]], block: nn.Module) -> tuple[Pass, Pass]:
    first, again = selective()
    _, routers = passes(block)
    return first, _inside(again, routers)


@contextmanager
def _inside(outer: Pass, inner: Pass) -> Iterator[None]:
    with outer, inner:
        yield
