"""A network and what it is to minimise, as one module that returns the loss: what DeepSpeed trains.

    loss = CausalLM(network)(inputs, targets, documents, positions)      # mean nats a target
    parts = CausalLM(network).scored(**batch)                            # target by target

The arguments are the arrays of a batch (`model.objectives.rows`), as tensors. Targets of -100 have
no loss. All losses are in nats.

Letters: B rows, T positions, K positions with a target, D width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.documents import BEGINS
from model.multi_token import further_targets
from model.objectives.base import (
    Network,
    Objective,
    Scored,
    at_targets,
    balance_loss,
    hidden_states,
    scored_bits,
    scored_classes,
    scored_tokens,
    token_loss,
)
from model.objectives.detection import ReplacedTokenDetection
from model.objectives.generator import SIZE
from model.objectives.places import PLACES
from model.objectives.rows import IGNORED
from model.objectives.two_way import BidirectionalLM
from model.transformer import Transformer


class TokenLM(Objective):
    """A network with its LM head, that is to predict the tokens in `targets`.

    Only positions with a target go through the head.
    """

    UNUSED: tuple[str, ...] = ("pooler", "multi_token", "query_embedding")
    takes_places = True

    def forward(
        self,
        inputs: Tensor,
        targets: Tensor,
        documents: Tensor | None = None,
        positions: Tensor | None = None,
        **more: Tensor,
    ) -> Tensor:
        """Mean loss over the targets; 0 when there are none."""
        places = more.pop(PLACES, None)
        hidden_BTD = hidden_states(self.network, inputs, documents, positions, **more)
        loss = self.token_loss(*at_targets(hidden_BTD, targets, places))
        return loss + balance_loss(self)

    @torch.no_grad()
    def scored(self, inputs: Tensor, targets: Tensor, **more: Tensor) -> dict[str, Scored]:
        """Every target with its loss, in the order of the batch: `tokens`."""
        hidden_BTD = hidden_states(self.network, inputs, **more)
        return {"tokens": scored_tokens(self.network, *at_targets(hidden_BTD, targets))}

    def answers(self, targets: Tensor, **_: Tensor) -> dict[str, Tensor]:
        """The right answers `[K]`, by the names that `scored` has for them."""
        return {"tokens": targets[targets != IGNORED]}

    @torch.no_grad()
    def token_losses(self, inputs: Tensor, targets: Tensor, **more: Tensor) -> Tensor:
        """Negative log-likelihood of every target, `[B, T]`; 0 where the target is -100."""
        found = self.scored(inputs, targets, **more)["tokens"].losses
        losses = found.new_zeros(targets.shape)
        losses[targets != IGNORED] = found
        return losses


class PermutedLM(TokenLM):
    """Predict tokens in a sampled order; queries, which see no token of theirs, have a vector."""

    UNUSED = ("pooler", "multi_token")


class TextToText(TokenLM):
    """Write one text for another: batches `[parts, R, T]` of rows that may be of several workers.

    The targets may be smoothed: a little of each is then any token's.
    """

    def __init__(self, network: Network, label_smoothing: float = 0.0) -> None:
        super().__init__(network)
        self.label_smoothing = label_smoothing

    def forward(
        self,
        inputs: Tensor,
        targets: Tensor,
        documents: Tensor | None = None,
        positions: Tensor | None = None,
        **more: Tensor,
    ) -> Tensor:
        """Mean loss over the targets; 0 when there are none."""
        given = {"inputs": inputs, "targets": targets, "documents": documents, **more}
        rows = {
            key: array if key in (BEGINS, PLACES) else array.flatten(0, 1)
            for key, array in given.items()
            if array is not None
        }
        return super().forward(**rows, positions=positions)


class CausalLM(TokenLM):
    """Predict each next token from those before it in its document.

    A network with modules for the tokens after the next learns those too; the mean of their losses
    counts `FURTHER` (DeepSeek-V3, 2024, section 2.2 and 4.2).
    """

    UNUSED = ("pooler",)
    FURTHER = 0.3
    takes_places = False  # nearly every position has a target

    def forward(
        self,
        inputs: Tensor,
        targets: Tensor,
        documents: Tensor | None = None,
        positions: Tensor | None = None,
        **more: Tensor,
    ) -> Tensor:
        """Mean loss over targets that are not -100; 0 when all are. All inputs `[B, T]`."""
        hidden_BTD = hidden_states(self.network, inputs, documents, positions, **more)
        loss = self.token_loss(hidden_BTD.flatten(0, 1), self.network.own(targets).flatten())
        if self.network.config.multi_token:
            assert isinstance(self.network, Transformer), "only decoders have such modules"
            states = self.network.further(
                hidden_BTD, inputs, documents, positions, more.get("begins")
            )
            losses = [
                token_loss(
                    self.network,
                    further_BTD.flatten(0, 1),
                    further_targets(targets, documents, k, IGNORED).flatten(),
                )[0]
                for k, further_BTD in enumerate(states, 1)
            ]
            loss = loss + self.FURTHER * torch.stack(losses).mean()
        return loss + balance_loss(self)


class PairLM(Objective):
    """A masked LM that also answers a question on two texts, from the class token at position 0.

    The two losses are added (Devlin et al. 2019, appendix A.2).
    """

    UNUSED = ("multi_token", "query_embedding")
    takes_places = True

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self.pair = nn.Linear(network.config.width, 2)
        nn.init.zeros_(self.pair.weight)
        nn.init.zeros_(self.pair.bias)

    def forward(
        self,
        inputs: Tensor,
        targets: Tensor,
        *,
        labels: Tensor,
        places: Tensor | None = None,
        **more: Tensor,
    ) -> Tensor:
        """Sum of the mean loss of the tokens and that of the `labels` `[B]`."""
        hidden_BTD = hidden_states(self.network, inputs, **more)
        tokens = self.token_loss(*at_targets(hidden_BTD, targets, places))
        return tokens + F.cross_entropy(self._scores(hidden_BTD), labels) + balance_loss(self)

    @torch.no_grad()
    def scored(
        self, inputs: Tensor, targets: Tensor, *, labels: Tensor, **more: Tensor
    ) -> dict[str, Scored]:
        """`tokens` and `pairs`."""
        hidden_BTD = hidden_states(self.network, inputs, **more)
        tokens = scored_tokens(self.network, *at_targets(hidden_BTD, targets))
        return {"tokens": tokens, "pairs": scored_classes(self._scores(hidden_BTD), labels)}

    def answers(self, targets: Tensor, *, labels: Tensor, **_: Tensor) -> dict[str, Tensor]:
        """The right answers `[K]`: `tokens` and `pairs`."""
        return {"tokens": targets[targets != IGNORED], "pairs": labels}

    def _scores(self, hidden_BTD: Tensor) -> Tensor:
        assert isinstance(self.network, Transformer), "only encoders answer questions"
        return self.pair(self.network.pool(hidden_BTD)).float()


class SentenceComparison(Objective):
    """Are two texts, encoded apart, of one piece? Yes has the probability sigmoid(s cos(a, b) + c).

    a and b are the states of the two class tokens, s and c are learned (Zhai et al. 2023, SigLIP,
    equation 1, with one pair a row).
    """

    UNUSED = ("pooler", "head_transform", "head_bias", "head", "detector", "query_embedding")

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self.scale = nn.Parameter(torch.tensor([5.0]))
        self.offset = nn.Parameter(torch.zeros(1))

    def forward(
        self, inputs: Tensor, *, documents: Tensor, labels: Tensor, **more: Tensor
    ) -> Tensor:
        """Mean loss of the `labels` `[B]`."""
        scores = self._scores(inputs, documents, **more)
        loss = F.binary_cross_entropy_with_logits(scores, labels.to(scores.dtype))
        return loss + balance_loss(self)

    @torch.no_grad()
    def scored(
        self, inputs: Tensor, *, documents: Tensor, labels: Tensor, **more: Tensor
    ) -> dict[str, Scored]:
        """`pairs`."""
        return {"pairs": scored_bits(self._scores(inputs, documents, **more), labels)}

    def answers(self, *, labels: Tensor, **_: Tensor) -> dict[str, Tensor]:
        """The right answers `[B]`: `pairs`."""
        return {"pairs": labels}

    def _scores(self, inputs: Tensor, documents: Tensor, **more: Tensor) -> Tensor:
        hidden_BTD = hidden_states(self.network, inputs, documents, **more)
        second_B = (documents == 2).int().argmax(1)
        two_BD = hidden_BTD[torch.arange(len(inputs), device=inputs.device), second_B]
        cosine_B = F.cosine_similarity(hidden_BTD[:, 0].float(), two_BD.float())
        return cosine_B * self.scale + self.offset


MODULES: dict[str, type[Objective]] = {
    "causal": CausalLM,
    "permuted": PermutedLM,
    "bidirectional": BidirectionalLM,
    "next_sentence": PairLM,
    "sentence_order": PairLM,
    "sentence_comparison": SentenceComparison,
}
"""By name of the objective; all others but replaced token detection are a `TokenLM`."""


def with_objective(
    network: Network, objective: str, z_loss: float = 0.0, generator_size: float = SIZE
) -> Objective:
    """The module that trains a network on an objective."""
    if objective == "replaced_token_detection":
        assert isinstance(network, Transformer), "only encoders learn it"
        return ReplacedTokenDetection(network, generator_size)
    module = MODULES.get(objective, TokenLM)(network)
    module.z_loss = z_loss
    return module


def own_parameters(module: Objective) -> dict[str, Tensor]:
    """What an objective has beside the network, by name: empty for most."""
    return {
        name: parameter.detach()
        for name, parameter in module.named_parameters()
        if not name.startswith("network.")
    }
