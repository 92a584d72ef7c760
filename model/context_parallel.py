"""Rows shared by several processes, each with a stretch of the positions: DeepSpeed-Ulysses.

Jacobs et al. 2023, section 3. Everything but attention works on positions one by one, so a process
does it for its own. For attention the processes exchange what they have: then each has all
positions of some heads, and afterwards its own positions of all heads again.

Letters: B rows, T positions and t those of one process, H heads and h those of one process, E head
dimension, P processes.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


@dataclass(frozen=True)
class ContextGroup:
    """The processes that share rows, and this one's place among them."""

    group: Any
    rank: int
    size: int

    def own(self, x_BT: Tensor) -> Tensor:
        """This process's stretch `[B, t, ...]` of `[B, T, ...]`."""
        return x_BT.chunk(self.size, 1)[self.rank]

    def mean(self, x: Tensor) -> Tensor:
        """The mean of a number without gradient over the processes."""
        # A copy, as `all_reduce` writes in place.
        total = x.to(torch.float32, copy=True)
        dist.all_reduce(total, group=self.group)
        return total / self.size

    def by_heads(self, x_BtHE: Tensor) -> Tensor:
        """All positions of this process's heads, `[B, T, h, E]`."""
        x_PBthE = x_BtHE.unflatten(2, (self.size, -1)).movedim(2, 0)
        return torch.cat(_Exchange.apply(x_PBthE, self.group).unbind(), 1)

    def by_positions(self, x_BThE: Tensor) -> Tensor:
        """All heads at this process's positions, `[B, t, H, E]`."""
        x_PBthE = x_BThE.unflatten(1, (self.size, -1)).movedim(1, 0)
        return torch.cat(_Exchange.apply(x_PBthE, self.group).unbind(), 2)


class SplitsContext:
    """What may share its rows with other processes."""

    context_group: ContextGroup | None = None

    def own(self, x_BT: Tensor) -> Tensor:
        """What of `[B, T, ...]` is this process's: all, unless it shares rows."""
        return x_BT if self.context_group is None else self.context_group.own(x_BT)


def split_context(module: nn.Module, context_group: ContextGroup) -> None:
    """Let the networks in a module share their rows."""
    for part in module.modules():
        if isinstance(part, SplitsContext):
            part.context_group = context_group


class _Exchange(torch.autograd.Function):
    """Slice p of process q becomes slice q of process p; of the gradients likewise."""

    @staticmethod
    def forward(ctx: Any, x_P: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return _exchanged(x_P, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        # The exchange is a permutation that undoes itself, so it is its own transpose as well.
        return _exchanged(gradients[0], ctx.group), None


def _exchanged(x_P: Tensor, group: Any) -> Tensor:
    x_P = x_P.contiguous()
    out_P = torch.empty_like(x_P)
    dist.all_to_all_single(out_P, x_P, group=group)
    return out_P
