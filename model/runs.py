"""Packed rows as recurrent networks read them: each document of a row is a sequence of its own.

1. A run is a stretch of a row that begins with no state behind it: a document, or the row's part of
   one. Runs lie beside each other, the longest first, whatever row they are of.
2. Time is cut into windows. A kernel reads a window of all runs that reach into it, so that what is
   computed behind the ends of shorter ones is little.
3. The state at a window's end is the next one's beginning. Where gradients are truncated, windows
   are so many steps long, and that state is cut off from what made it.

Letters: B rows, T positions, R runs, W steps of a window, N tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

WINDOW = 64
"""Steps of a window where nothing else asks for a length."""
Kernel = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Of inputs `[W, R, I]` and states `[R, S, H]`: what it gives `[W, R, H]`, and the last states."""


@dataclass(frozen=True)
class Runs:
    """The runs of packed rows, read from their beginnings or, backwards, from their ends.

    Of each window the places of its tokens among those of all rows, `[W, R]`, and which of these
    are real, as numbers within the window; `back_N` puts what was made of them in order again.
    """

    windows: list[tuple[Tensor, Tensor]]
    back_N: Tensor
    row_R: Tensor
    """The row that each run is of."""

    def read(
        self, kernel: Kernel, x_BTI: Tensor, state_BSH: Tensor, truncated: bool = False
    ) -> Tensor:
        """What a kernel gives of every token, `[B, T, H]`; each run begins with its row's state."""
        x_NI, made = x_BTI.flatten(0, 1), []
        state_RSH = state_BSH[self.row_R]
        for place_WR, real_N in self.windows:
            state_RSH = state_RSH[: place_WR.shape[1]]
            if truncated:
                state_RSH = state_RSH.detach()
            x_WRI = x_NI.index_select(0, place_WR.flatten()).unflatten(0, place_WR.shape)
            y_WRH, state_RSH = kernel(x_WRI, state_RSH)
            made.append(y_WRH.flatten(0, 1).index_select(0, real_N))
        return torch.cat(made).index_select(0, self.back_N).unflatten(0, x_BTI.shape[:2])


def lay_out(begins_BT: Tensor, steps: int | None, backwards: bool = False) -> Runs:
    """The runs of rows in which documents begin where `begins_BT` is True, and at their start."""
    begins_BT = begins_BT.clone()
    begins_BT[:, 0] = True
    start_R = begins_BT.flatten().nonzero()[:, 0]
    length_R = torch.diff(start_R, append=start_R.new_tensor([begins_BT.numel()]))
    length_R, order_R = length_R.sort(descending=True, stable=True)
    start_R = start_R[order_R]
    windows, places, steps = [], [], steps or WINDOW
    for first in range(0, int(length_R[0]), steps):
        alive = int((length_R > first).sum())
        size = min(steps, int(length_R[0]) - first)
        step_W1 = torch.arange(first, first + size, device=start_R.device)[:, None]
        real_WR = step_W1 < length_R[:alive]
        inside_WR = torch.minimum(step_W1, length_R[:alive] - 1)
        turned = length_R[:alive] - 1 - inside_WR if backwards else inside_WR
        place_WR = start_R[:alive] + turned
        windows.append((place_WR, real_WR.flatten().nonzero()[:, 0]))
        places.append(place_WR[real_WR])
    return Runs(windows, torch.cat(places).argsort(), start_R // begins_BT.shape[1])
