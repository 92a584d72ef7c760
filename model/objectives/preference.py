"""Learning from what people prefer: DPO, IPO, KTO and ORPO on the log-probabilities of answers.

    module = PreferenceLM(network, "dpo", beta=0.1)
    loss = module(inputs, documents, positions, answers, reference)

pi is the network, ref the one it began as; y_w and y_l are the wanted and the unwanted answer to a
prompt x. All are in nats; log-probabilities are sums over an answer's tokens, those of IPO and ORPO
means over them, as in the implementation of TRL, with which all four agree.

    DPO   -log sigmoid(beta h), h = log pi/ref(y_w) - log pi/ref(y_l)  (Rafailov et al. 2023, eq. 7)
    IPO   (h - 1 / (2 beta))^2                                         (Azar et al. 2023, eq. 17)
    KTO   1 - sigmoid(beta (log pi/ref(y) - z)) of a wanted answer, 1 - sigmoid(beta (z - ...)) of
          another; z is what pi and ref differ by on answers to other prompts, at least 0
          (Ethayarajh et al. 2024, eq. 7)
    ORPO  -log pi(x, y_w) - beta log sigmoid(log odds(y_w) / odds(y_l)); it has no ref
          (Hong et al. 2024, eqs. 4-7; the first part a mean over all tokens of x and y_w)

Letters: B samples of a batch, R rows of a sample, N rows together, T positions, K of them answered,
D width.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from model.objectives.base import Network, Objective, balance_loss, hidden_states
from model.objectives.losses import chunks
from model.objectives.rows import IGNORED

PreferenceLoss = Literal["dpo", "ipo", "kto", "orpo"]
MEANS = ("ipo", "orpo")
"""Losses of an answer's mean log-probability by token; those of the others are of the sum."""


class PreferenceLM(Objective):
    """A network that is to find wanted answers likelier than unwanted ones.

    A sample is a pair, the wanted answer first. For KTO it is a group of 2 M rows: M answers, and
    behind them, to the same prompts, the answers to others, from which z is estimated.
    """

    UNUSED = ("pooler", "multi_token")
    takes_begins = False

    def __init__(
        self,
        network: Network,
        loss: PreferenceLoss,
        beta: float,
        desirable: float = 1.0,
        undesirable: float = 1.0,
    ) -> None:
        super().__init__(network)
        self.loss, self.beta = loss, beta
        self.desirable, self.undesirable = desirable, undesirable

    def forward(
        self,
        inputs: Tensor,
        documents: Tensor,
        positions: Tensor,
        answers: Tensor,
        reference: Tensor | None = None,
        wanted: Tensor | None = None,
        token_share: Tensor | None = None,
    ) -> Tensor:
        """Mean loss of the samples. The first four are `[B, R, T]`; `answers` has the token after
        each input where it belongs to an answer, and -100 elsewhere.

        `reference` `[B, R]` are the answers' log-probabilities by ref, which ORPO does without.
        `wanted` `[B, M]` is for KTO. `token_share` `[B]`, for ORPO, is the samples of the whole
        batch over the tokens of its wanted rows. Times that, the summed losses of wanted rows have
        as their mean the loss of a token of the whole batch, however it is divided into parts.
        """
        rows = (inputs, documents, positions, answers)
        if self.loss == "kto":
            assert reference is not None and wanted is not None, "KTO goes by both"
            loss = self._kto(rows, reference, wanted.bool())
        else:
            scores_BR, more_B = self._pairs(rows, reference, token_share)
            self._tell(scores_BR[:, 0] - scores_BR[:, 1])
            loss = (self._pair_losses(scores_BR) + more_B).mean()
        return loss + balance_loss(self)

    def _pairs(
        self, rows: tuple[Tensor, ...], reference: Tensor | None, token_share: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Scores `[B, R]`, and what ORPO adds for the tokens of wanted rows `[B]`."""
        inputs, documents, positions, answers = (t.flatten(0, 1) for t in rows)
        hidden_NTD = hidden_states(self.network, inputs, documents, positions)
        found_N = log_probs(self.network, hidden_NTD, answers)
        scores_BR = self.scores(found_N, answers, reference).view(rows[0].shape[:2])
        if token_share is None:
            return scores_BR, scores_BR.new_zeros(len(scores_BR))
        following = next_tokens(inputs[0::2], documents[0::2], answers[0::2])
        likelihood_B = log_probs(self.network, hidden_NTD[0::2], following)
        return scores_BR, -likelihood_B * token_share

    def scores(self, log_probs_N: Tensor, answers_NT: Tensor, reference: Tensor | None) -> Tensor:
        """Scores of answers, `[N]`: log pi(y), minus log ref(y) where there is a ref; of some
        losses (`MEANS`) by token. An answer's reward is beta times its score.
        """
        found_N = log_probs_N if reference is None else log_probs_N - reference.flatten()
        if self.loss in MEANS:
            found_N = found_N / (answers_NT != IGNORED).sum(-1).clamp(min=1)
        return found_N

    def _pair_losses(self, scores_BR: Tensor) -> Tensor:
        """The loss of each pair `[B]`, by the formulas above; of ORPO the part with the odds."""
        wanted_B, unwanted_B = scores_BR.unbind(-1)
        ahead_B = wanted_B - unwanted_B
        if self.loss == "dpo":
            return -F.logsigmoid(self.beta * ahead_B)
        if self.loss == "ipo":
            return (ahead_B - 1 / (2 * self.beta)) ** 2
        odds_B = ahead_B - (log1mexp(wanted_B) - log1mexp(unwanted_B))
        return -self.beta * F.logsigmoid(odds_B)

    def _kto(self, rows: tuple[Tensor, ...], reference: Tensor, wanted_BM: Tensor) -> Tensor:
        """KTO's mean loss. The second half of a group's rows, answers to other prompts, gives its
        z, through which no gradient goes.
        """
        answered = wanted_BM.shape[1]
        with torch.no_grad():
            others_BM = self._kto_scores([t[:, answered:] for t in rows], reference[:, answered:])
            z_B1 = others_BM.mean(-1, keepdim=True).clamp(min=0)
        scores_BM = self._kto_scores([t[:, :answered] for t in rows], reference[:, :answered])
        ahead_BM = torch.where(wanted_BM, 1.0, -1.0) * (scores_BM - z_B1)
        self._tell(ahead_BM)
        weights_BM = torch.where(wanted_BM, self.desirable, self.undesirable)
        return (weights_BM * (1 - torch.sigmoid(self.beta * ahead_BM))).mean()

    def _kto_scores(self, rows: list[Tensor], reference: Tensor) -> Tensor:
        inputs, documents, positions, answers = (t.flatten(0, 1) for t in rows)
        hidden_NTD = hidden_states(self.network, inputs, documents, positions)
        found_N = log_probs(self.network, hidden_NTD, answers)
        return self.scores(found_N, answers, reference).view(reference.shape)

    def _tell(self, ahead: Tensor) -> None:
        """Share of the rewards that are in order, and by how much on average."""
        margin = self.beta * ahead.detach()
        accuracy = (margin > 0).float().mean()
        self.told = {"reward_accuracy": accuracy, "reward_margin": margin.mean()}


def log_probs(network: Network, hidden_NTD: Tensor, answers_NT: Tensor) -> Tensor:
    """Log-probability of each row's answer, the sum over its tokens, `[N]` in fp32.

    The logits exist a chunk at a time, and once more on the way back.
    """

    def of_tokens(hidden_KD: Tensor, answers_K: Tensor) -> Tensor:
        return -F.cross_entropy(network.logits(hidden_KD).float(), answers_K, reduction="none")

    kept_NT = answers_NT != IGNORED
    hidden_KD, answers_K = hidden_NTD[kept_NT], answers_NT[kept_NT]
    parts = [
        checkpoint(of_tokens, hidden_KD[part], answers_K[part], use_reentrant=False)
        for part in chunks(len(answers_K), network.config.vocab_size, answers_K.device)
    ]
    found_NT = hidden_NTD.new_zeros(answers_NT.shape, dtype=torch.float32)
    return found_NT.masked_scatter(kept_NT, torch.cat(parts)).sum(-1)


def next_tokens(inputs_NT: Tensor, documents_NT: Tensor, answers_NT: Tensor) -> Tensor:
    """The token after each input, of the prompt too; -100 where there is none."""
    following = inputs_NT.roll(-1, -1).masked_fill(documents_NT.roll(-1, -1) == 0, IGNORED)
    following[:, -1] = IGNORED
    return torch.where(answers_NT != IGNORED, answers_NT, following)


def log1mexp(x: Tensor) -> Tensor:
    """log(1 - exp(x)) of x < 0, exact for small and for large ones (Maechler 2012)."""
    small = x > -0.6931
    inner = torch.where(small, x, -1.0)  # what is not taken must not spoil the gradient
    outer = torch.where(small, -1.0, x)
    return torch.where(small, torch.log(-torch.expm1(inner)), torch.log1p(-torch.exp(outer)))
