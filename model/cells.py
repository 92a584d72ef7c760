"""The steps of recurrent networks: PyTorch's kernels for whole sequences, and a step written out.

| cell | h' of an input x and a state h |
|---|---|
| rnn | tanh(W x + b + U h + c) (Elman 1990) |
| gru | (1 - z) n + z h, n = tanh(W x + b + r (U h + c)), gates r, z = sigmoid(...) |
| lstm | o tanh(m'), m' = f m + i g, g = tanh(...), gates i, f, o = sigmoid(...) |

GRU: Cho et al. 2014, but with the reset gate applied behind U, as in cuDNN, not before it. LSTM:
Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000.

A state is `[B, S, H]`: h, and of an LSTM behind it the memory m. All gates' matrices lie above each
other, in PyTorch's order (r, z, n; i, f, g, o).

Letters: B rows, T steps, S states, I inputs, H numbers of a state, G = gates x H.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

KERNELS: dict[str, type[nn.RNN | nn.GRU | nn.LSTM]] = {
    "rnn": nn.RNN,
    "gru": nn.GRU,
    "lstm": nn.LSTM,
}


def step(cell: str, given_BG: Tensor, recurrent_BG: Tensor, state_BSH: Tensor) -> Tensor:
    """The next state `[B, S, H]`, of W x + b (`given`) and U h + c (`recurrent`)."""
    h_BH = state_BSH[:, 0]
    if cell == "rnn":
        return torch.tanh(given_BG + recurrent_BG)[:, None]
    if cell == "gru":
        (r, z, n), (ur, uz, un) = given_BG.chunk(3, -1), recurrent_BG.chunk(3, -1)
        z = torch.sigmoid(z + uz)
        new = torch.tanh(n + torch.sigmoid(r + ur) * un)
        return ((1 - z) * new + z * h_BH)[:, None]
    i, f, g, o = (given_BG + recurrent_BG).chunk(4, -1)
    memory = torch.sigmoid(f) * state_BSH[:, 1] + torch.sigmoid(i) * torch.tanh(g)
    return torch.stack((torch.sigmoid(o) * torch.tanh(memory), memory), 1)


def whole(kernel: nn.RNNBase, x_TBI: Tensor, state_BSH: Tensor) -> tuple[Tensor, Tensor]:
    """What a kernel gives at every step, `[T, B, H]`, and its last state."""
    parts = [part.contiguous()[None] for part in state_BSH.unbind(1)]
    y_TBH, last = kernel(x_TBI, tuple(parts) if len(parts) > 1 else parts[0])
    ends = last if isinstance(last, tuple) else (last,)
    return y_TBH, torch.stack([end[0] for end in ends], 1)


def stepwise(
    cell: str,
    kernel: nn.RNNBase,
    x_BTI: Tensor,
    state_BSH: Tensor,
    begins_BT: Tensor | None = None,
    begin_BSH: Tensor | None = None,
) -> Tensor:
    """The states at every step, `[B, S, T, H]`, with the kernel's matrices, step by step.

    Where a document begins (`begins_BT`) it has the state `begin_BSH` behind it, or none.
    """
    given_BTG, states = _given(kernel, x_BTI), []
    for t in range(x_BTI.shape[1]):
        if begins_BT is not None:
            fresh = torch.zeros_like(state_BSH) if begin_BSH is None else begin_BSH
            state_BSH = torch.where(begins_BT[:, t, None, None], fresh, state_BSH)
        state_BSH = step(cell, given_BTG[:, t], fed_back(kernel, state_BSH), state_BSH)
        states.append(state_BSH)
    return torch.stack(states, 2)


def _given(kernel: nn.RNNBase, x: Tensor) -> Tensor:
    """W x + b of any inputs, which no state is needed for: `[..., G]`."""
    weight, _, bias, _ = kernel.all_weights[0]
    return F.linear(x, weight, bias)


def fed_back(kernel: nn.RNNBase, state_BSH: Tensor) -> Tensor:
    """U h + c, `[B, G]`."""
    _, weight, _, bias = kernel.all_weights[0]
    return F.linear(state_BSH[:, 0], weight, bias)


def initialise_kernel(kernel: nn.RNNBase) -> None:
    """Draw a kernel's weights: W as other matrices; each gate's U orthogonal, so that a state keeps
    its size over many steps (Saxe et al. 2014; Le et al. 2015); an LSTM's forget gate open at first
    (Jozefowicz et al. 2015).
    """
    read, fed_back, *biases = kernel.all_weights[0]
    nn.init.normal_(read, std=1 / math.sqrt(kernel.input_size))
    for gate in fed_back.split(kernel.hidden_size):
        nn.init.orthogonal_(gate)
    for bias in biases:
        nn.init.zeros_(bias)
    if isinstance(kernel, nn.LSTM):
        nn.init.ones_(biases[0][kernel.hidden_size : 2 * kernel.hidden_size])
