"""The bidirectional language model of ELMo (Peters et al. 2018, section 3.1, equation 1).

Two networks on one embedding and with one head, one of which reads from left to right and predicts
the next token, the other from right to left and predicts the one before. Their losses are added.

Letters: B rows, T positions, K positions with a target, D width.
"""

import torch
from torch import Tensor

from model.objectives.base import (
    Network,
    Objective,
    Scored,
    at_targets,
    hidden_states,
    scored_tokens,
)
from model.objectives.rows import IGNORED

FORWARD, BACKWARD = "tokens", "backward_tokens"


class BidirectionalLM(Objective):
    """Each token from those before it, and each from those behind it."""

    UNUSED = ("pooler",)

    def __init__(self, network: Network) -> None:
        recurrent = network.config.recurrent
        assert recurrent is not None and recurrent.apart, "each direction would see the answers"
        super().__init__(network)

    def forward(
        self, inputs: Tensor, targets: Tensor, documents: Tensor, positions: Tensor
    ) -> Tensor:
        """The mean losses of both directions, added; 0 without targets. All `[B, T]`."""
        found = self._predicting(inputs, targets, documents, positions).values()
        forward, backward = (self.token_loss(*both) for both in found)
        return forward + backward

    @torch.no_grad()
    def scored(
        self, inputs: Tensor, targets: Tensor, documents: Tensor, positions: Tensor
    ) -> dict[str, Scored]:
        """`tokens`, by those before them, and `backward_tokens`, by those behind them."""
        found = self._predicting(inputs, targets, documents, positions)
        return {name: scored_tokens(self.network, *both) for name, both in found.items()}

    def answers(
        self, inputs: Tensor, targets: Tensor, positions: Tensor, **_: Tensor
    ) -> dict[str, Tensor]:
        """The right answers `[K]`, by the names that `scored` has for them."""
        before = tokens_before(inputs, positions)
        return {FORWARD: targets[targets != IGNORED], BACKWARD: before[before != IGNORED]}

    def _predicting(
        self, inputs: Tensor, targets: Tensor, documents: Tensor, positions: Tensor
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """States `[K, D / 2]` and what they are to predict `[K]`, by direction."""
        hidden_BTD = hidden_states(self.network, inputs, documents, positions)
        forward, backward = hidden_BTD.chunk(2, -1)
        return {
            FORWARD: at_targets(forward, targets),
            BACKWARD: at_targets(backward, tokens_before(inputs, positions)),
        }


def tokens_before(inputs_BT: Tensor, positions_BT: Tensor) -> Tensor:
    """The token before each, `[B, T]`; -100 where that is another document's, or the class token
    that stands at position 0 of each.
    """
    return torch.where(positions_BT >= 2, inputs_BT.roll(1, 1), IGNORED)
