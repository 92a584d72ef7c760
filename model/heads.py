"""Heads for other tasks than the next token, on top of a pretrained network.

Letters: B rows, T positions, D width, C classes.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.transformer import Transformer


class SequenceClassifier(nn.Module):
    """A class for each row: softmax(W z), z being the state of a token that has seen all of it.

    That is a decoder's last real token, and an encoder's first, pooled if it has a pooler.

    W starts at zero: at first every class is equally likely, and the first gradients that reach the
    pretrained network are already those of a head that has begun to learn.
    """

    def __init__(self, network: Transformer, classes: int) -> None:
        super().__init__()
        self.network = network
        self.classifier = nn.Linear(network.config.width, classes)
        nn.init.zeros_(self.classifier.weight)
        nn.init.zeros_(self.classifier.bias)

    def forward(
        self,
        inputs: Tensor,
        documents: Tensor | None = None,
        positions: Tensor | None = None,
        *,
        labels: Tensor,
    ) -> Tensor:
        """Mean cross-entropy in nats of the `labels` `[B]`."""
        return F.cross_entropy(self.scores(inputs, documents, positions).float(), labels)

    def scores(
        self, inputs: Tensor, documents: Tensor | None = None, positions: Tensor | None = None
    ) -> Tensor:
        """Logits `[B, C]`. One text a row; where `documents` is 0 there is padding."""
        hidden_BTD = self.network(inputs, documents, positions)
        if self.network.config.family == "decoder":
            at_B = last_tokens(inputs, documents)
            return self.classifier(hidden_BTD[torch.arange(len(inputs)), at_B])
        return self.classifier(self.network.pool(hidden_BTD))


def last_tokens(inputs_BT: Tensor, documents_BT: Tensor | None) -> Tensor:
    """Position of the last token of each row that is not padding, `[B]`."""
    positions_T = torch.arange(inputs_BT.shape[1], device=inputs_BT.device)
    if documents_BT is None:
        return positions_T[-1].expand(len(inputs_BT))
    return (positions_T * (documents_BT > 0)).argmax(1)
