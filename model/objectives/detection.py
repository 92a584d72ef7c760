"""Replaced token detection: a small masked LM fills masks, the network finds what it changed.

Letters: B rows, T positions, N real ones of a batch together, K masked ones, C of a chunk, D width,
V vocabulary.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from model.head_parts import Detector
from model.initialise import initialise
from model.objectives.base import (
    Objective,
    Scored,
    at_targets,
    balance_loss,
    hidden_states,
    scored_bits,
    scored_tokens,
    token_loss,
)
from model.objectives.generator import generator_shape
from model.objectives.losses import chunks
from model.objectives.rows import IGNORED
from model.transformer import Transformer


class ReplacedTokenDetection(Objective):
    """A small masked LM fills the masks; the network says of every token whether it was replaced.

    The generator (`generator_shape`) shares the embeddings. Its samples are drawn with the batch's
    own `draws`, so that a row does not depend on its company. The detector's loss counts 50 times
    (Clark et al. 2020, ELECTRA, sections 2 and 3.2). The detector is the network's own head, or
    where it has none stays with the objective.
    """

    UNUSED = ("pooler", "head_transform", "head_bias", "head", "query_embedding")
    WEIGHT = 50.0

    def __init__(self, network: Transformer, generator_size: float) -> None:
        super().__init__(network)
        self.generator = Transformer(generator_shape(network.config, generator_size))
        for name in ("embedding", "position_embedding", "segment_embedding"):
            if hasattr(network, name):
                setattr(self.generator, name, getattr(network, name))
        if not network.config.detector:
            self.detector = Detector(network.config)
            initialise(self.detector)

    def forward(
        self, inputs: Tensor, targets: Tensor, *, draws: Tensor, documents: Tensor, **more: Tensor
    ) -> Tensor:
        """The generator's mean loss plus 50 times the detector's."""
        hidden_KD, targets_K = self._generate(inputs, targets, documents, **more)
        filled = self._fill(inputs, targets, draws, hidden_KD)
        scores_N, replaced_N = self._detect(filled, targets, documents, **more)
        detected = F.binary_cross_entropy_with_logits(scores_N, replaced_N.to(scores_N.dtype))
        generated, _ = token_loss(self.generator, hidden_KD, targets_K)
        return generated + self.WEIGHT * detected + balance_loss(self)

    @torch.no_grad()
    def scored(
        self, inputs: Tensor, targets: Tensor, *, draws: Tensor, documents: Tensor, **more: Tensor
    ) -> dict[str, Scored]:
        """`replaced`, of every token, and the generator's `tokens`."""
        hidden_KD, targets_K = self._generate(inputs, targets, documents, **more)
        filled = self._fill(inputs, targets, draws, hidden_KD)
        return {
            "replaced": scored_bits(*self._detect(filled, targets, documents, **more)),
            "tokens": scored_tokens(self.generator, hidden_KD, targets_K),
        }

    @torch.no_grad()
    def answers(
        self, inputs: Tensor, targets: Tensor, *, draws: Tensor, documents: Tensor, **more: Tensor
    ) -> dict[str, Tensor]:
        """The right answers: `replaced`, which depend on the generator, and its `tokens`."""
        hidden_KD, targets_K = self._generate(inputs, targets, documents, **more)
        filled = self._fill(inputs, targets, draws, hidden_KD)
        replaced_N = self._replaced(filled, targets)[documents > 0]
        return {"replaced": replaced_N, "tokens": targets_K}

    def _generate(
        self, inputs: Tensor, targets: Tensor, documents: Tensor, **more: Tensor
    ) -> tuple[Tensor, Tensor]:
        return at_targets(hidden_states(self.generator, inputs, documents, **more), targets)

    @torch.no_grad()
    def _fill(self, inputs: Tensor, targets: Tensor, draws: Tensor, hidden_KD: Tensor) -> Tensor:
        """The inputs with a sample of the generator in place of each mask."""
        masked = targets != IGNORED
        draws_K, samples = draws[masked].float(), []
        for rows in chunks(len(draws_K), self.generator.config.vocab_size, draws_K.device):
            probs_CV = self.generator.logits(hidden_KD[rows]).float().softmax(-1)
            samples.append(sample_at(probs_CV, draws_K[rows]))
        filled = inputs.clone()
        filled[masked] = torch.cat(samples)
        return filled

    def _detect(
        self, filled: Tensor, targets: Tensor, documents: Tensor, **more: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Scores of all tokens but padding, and whether each was replaced by another one."""
        hidden_BTD = hidden_states(self.network, filled, documents, **more)
        real = documents > 0
        head = self.network.detector if self.network.config.detector else self.detector
        scores_N = head(hidden_BTD[real]).float()
        return scores_N, self._replaced(filled, targets)[real]

    @staticmethod
    def _replaced(filled: Tensor, targets: Tensor) -> Tensor:
        return ((filled != targets) & (targets != IGNORED)).long()


def sample_at(probs_CV: Tensor, draws_C: Tensor) -> Tensor:
    """The token in which each cumulative distribution passes the draw, uniform in [0, 1)."""
    cumulative_CV = probs_CV.cumsum(-1)
    # Scaled by the last sum, which rounding leaves near 1 and not at it.
    at_C1 = draws_C[:, None] * cumulative_CV[:, -1:]
    # To the right, so that no token of probability 0 is drawn; clamped for a draw rounded up to 1.
    return torch.searchsorted(cumulative_CV, at_C1, right=True)[:, 0].clamp(
        max=probs_CV.shape[-1] - 1
    )
