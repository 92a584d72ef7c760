"""A feed-forward network on dense features, with the loss that maximum likelihood gives it.

Letters: B rows, D features, C outputs.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.config_records import DenseActivation, DenseLoss


class DenseNetwork(nn.Module):
    """Linear layers of these sizes, the first of the features, with an activation between them."""

    def __init__(self, sizes: Sequence[int], activation: DenseActivation, loss: DenseLoss) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(into, out) for into, out in pairwise(sizes))
        self.activation, self.loss = activation, loss

    def outputs(self, inputs_BD: Tensor) -> Tensor:
        """What the last layer says of each row, [B, C]: scores of classes, or numbers."""
        states = inputs_BD
        for layer in self.layers[:-1]:
            states = getattr(torch, self.activation)(layer(states))
        return self.layers[-1](states)

    def forward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """The mean loss of a row. Cross-entropy, of classes [B]: what is left of -log p(label)
        under Cat(softmax(outputs)). Squared error, of numbers [B, C]: under Normal(outputs, sigma),
        but for a factor and a sum that the weights do not change.
        """
        outputs_BC = self.outputs(inputs)
        if self.loss == "cross_entropy":
            return F.cross_entropy(outputs_BC, labels)
        return (outputs_BC - labels).square().sum(-1).mean()
