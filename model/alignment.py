"""How a recurrent decoder looks at an encoder's states: the first attention there was.

    context_BTD, weights_BTS = alignment(query_BTD, *alignment.prepare(states_BSD), seen)

Scores of a decoder's state s and an encoder's state h: v' tanh(W s + U h) (additive: Bahdanau et
al. 2015, appendix A.1.2), s' h (dot) or s' W h (general: Luong et al. 2015, equation 8). A softmax
over the encoder's states makes them weights, and the context is the states' mean by these.

Letters: B rows, S encoder positions, T decoder positions, D width.
"""

import torch
from torch import Tensor, nn

from model.config import ModelConfig


class Alignment(nn.Module):
    """Scores, weights and context; what hooks its forward pass sees the weights."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        assert config.recurrent is not None
        self.kind, width = config.recurrent.attention, config.width
        if self.kind != "dot":
            self.key = nn.Linear(width, width, bias=False)
        if self.kind == "additive":
            self.query, self.score = nn.Linear(width, width), nn.Linear(width, 1, bias=False)

    def prepare(self, states_BSD: Tensor) -> tuple[Tensor, Tensor]:
        """What does not depend on the decoder: keys and states, each `[B, S, D]`."""
        return states_BSD if self.kind == "dot" else self.key(states_BSD), states_BSD

    def forward(
        self, query_BTD: Tensor, key_BSD: Tensor, state_BSD: Tensor, seen: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Contexts `[B, T, D]` and weights `[B, T, S]`; `seen` is False where a state is unseen."""
        if self.kind == "additive":
            mixed_BTSD = torch.tanh(self.query(query_BTD)[:, :, None] + key_BSD[:, None])
            scores_BTS = self.score(mixed_BTSD)[..., 0]
        else:
            scores_BTS = query_BTD @ key_BSD.mT
        if seen is not None:
            scores_BTS = scores_BTS.masked_fill(~seen, -torch.inf)
        weights_BTS = scores_BTS.softmax(-1)
        return weights_BTS @ state_BSD, weights_BTS
