"""What stands behind a network's last state: the parts of an LM head, and ELECTRA's detector."""

import torch
from torch import Tensor, nn

from model.blocks import make_norm
from model.config import ModelConfig
from model.feedforward import ACTIVATIONS


class Detector(nn.Module):
    """w f(W h + b) + c, one score a token (the discriminator's head of ELECTRA's released code)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config, self.activation = config, ACTIVATIONS[config.activation]
        self.dense = nn.Linear(config.width, config.width)
        self.out = nn.Linear(config.width, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        """Of every hidden state, `[...]`."""
        return self.out(self.activation(self.dense(hidden)))[..., 0]


class HeadTransform(nn.Module):
    """norm(f(W h + b)), before the LM head (the masked-LM head of BERT's released code)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[config.activation]
        self.dense = nn.Linear(config.width, config.embedded, bias=config.bias == "all")
        self.norm = make_norm(config, config.embedded)

    def forward(self, hidden: Tensor) -> Tensor:
        """Of every hidden state, as wide as an embedding."""
        return self.norm(self.activation(self.dense(hidden)))


def softcap(logits: Tensor, cap: float | None) -> Tensor:
    """Keep logits within (-cap, cap) smoothly; None leaves them."""
    return logits if cap is None else cap * torch.tanh(logits / cap)
