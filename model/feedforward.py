"""The position-wise feed-forward layer (Vaswani et al. 2017, section 3.3), plain or gated.

Letters: B rows, T positions, D width, F feed-forward width.
"""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from model.config import GATED, Activation, ModelConfig


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU by its tanh approximation, as in GPT-2 and Gemma (Hendrycks and Gimpel 2016)."""
    return F.gelu(x, approximate="tanh")


def relu2(x: Tensor) -> Tensor:
    """The square of ReLU (So et al. 2021, Primer)."""
    return F.relu(x).square()


ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "swiglu": F.silu,
    "geglu": gelu_tanh,
    "geglu_exact": F.gelu,
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
    "relu": F.relu,
    "relu2": relu2,
}


class FeedForward(nn.Module):
    """down(f(up(x))), or gated: down(f(gate(x)) * up(x)) with gate and up in one matrix."""

    def __init__(self, config: ModelConfig, width: int | None = None) -> None:
        super().__init__()
        width, bias = width or config.ffn_width, config.feedforward_bias
        self.activation = config.activation
        self.up = nn.Linear(config.width, width * (1 + config.gated), bias=bias)
        self.down = nn.Linear(width, config.width, bias=bias)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Transform each token on its own, `[B, T, D]`."""
        return self.down(activate(self.activation, self.up(x_BTD)))


def activate(activation: Activation, x: Tensor) -> Tensor:
    """f(x); of a gated activation f(first half) * second half, over the last dimension."""
    f = ACTIVATIONS[activation]
    if activation not in GATED:
        return f(x)
    gate, up = x.chunk(2, -1)
    return f(gate) * up
