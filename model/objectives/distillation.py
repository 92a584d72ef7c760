"""Distillation: a student learns what a teacher makes of the same rows (Hinton et al. 2015).

    module = Distilled(student, teacher, Shares(soft=5, hard=2, hidden=1, temperature=2))
    loss = module(**batch)

The three losses of DistilBERT (Sanh et al. 2019, section 3), each times its share: the divergence
of the softened scores, T^2 KL(teacher || student); cross-entropy with the right answers; and
1 - cosine of the final states that scores are made of, of classes those of all tokens. Student and
teacher are both objectives of tokens, or both have a head of classes. The teacher is no part of the
module: nothing of it is trained, saved or divided.

Letters: B rows, T positions, K targets, D width, V scores of a target.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from model.heads import Headed
from model.objectives.base import hidden_states
from model.objectives.losses import chunks
from model.objectives.modules import TokenLM
from model.objectives.rows import IGNORED

Learner = TokenLM | Headed


class Shares(NamedTuple):
    """The factor of each loss, and the temperature T: scores are divided by it to be compared."""

    soft: float
    hard: float
    hidden: float
    temperature: float


class Distilled(nn.Module):
    """A student with what it is to learn from a teacher."""

    told: Mapping[str, Tensor] = MappingProxyType({})
    """The three losses of the last batch, each without its factor."""

    def __init__(self, student: Learner, teacher: Learner, shares: Shares) -> None:
        super().__init__()
        self.student, self.shares = student, shares
        self._teacher = (teacher.eval().requires_grad_(False),)  # in a tuple, it is no part

    @property
    def teacher(self) -> Learner:
        """What to learn from; no submodule, so that nothing of it is trained, saved or divided."""
        return self._teacher[0]

    def forward(self, **batch: Tensor) -> Tensor:
        """Mean loss of the targets; of classes `labels` `[B]`, -100 where a row has none."""
        teacher = self.teacher.to(batch["inputs"].device)
        learn = self._classes if isinstance(self.student, Headed) else self._tokens
        soft, hard, hidden = learn(teacher, **batch)
        self.told = {
            "soft_loss": soft.detach(),
            "hard_loss": hard.detach(),
            "hidden_loss": hidden.detach(),
        }
        shares = self.shares
        return shares.soft * soft + shares.hard * hard + shares.hidden * hidden

    def _classes(
        self, teacher: Learner, labels: Tensor, **rows: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The three losses, without their factors, of two networks with a head of classes."""
        assert isinstance(self.student, Headed) and isinstance(teacher, Headed)
        documents = rows["documents"]
        mine_BTD = self.student.states(**rows)
        with torch.no_grad():
            theirs_BTD = teacher.states(**rows)
            wanted_BC = teacher.score(theirs_BTD, documents)
        soft, hard = self._compared(self.student.score(mine_BTD, documents), wanted_BC, labels)
        real_BT = documents > 0
        apart_B = (self._apart(mine_BTD, theirs_BTD) * real_BT).sum(1) / real_BT.sum(1)
        return soft / len(labels), hard / len(labels), apart_B.mean()

    def _tokens(
        self, teacher: Learner, targets: Tensor, **rows: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The three losses, without their factors, of two networks that predict tokens. Scores are
        worked out for a chunk of the targets at a time, and once more on the way back.
        """
        assert isinstance(self.student, TokenLM) and isinstance(teacher, TokenLM)
        kept_BT, network, other = targets != IGNORED, self.student.network, teacher.network
        mine_KD = hidden_states(network, **rows)[kept_BT]
        with torch.no_grad():
            theirs_KD = hidden_states(other, **rows)[kept_BT]
        targets_K = targets[kept_BT]

        def of_chunk(mine: Tensor, theirs: Tensor, wanted: Tensor) -> Tensor:
            return torch.stack(self._compared(network.logits(mine), other.logits(theirs), wanted))

        parts = [
            checkpoint(of_chunk, mine_KD[k], theirs_KD[k], targets_K[k], use_reentrant=False)
            for k in chunks(len(targets_K), network.config.vocab_size, targets_K.device)
        ]
        soft, hard = torch.stack(parts).sum(0) / len(targets_K)
        return soft, hard, self._apart(mine_KD, theirs_KD).mean()

    def _compared(self, mine: Tensor, theirs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Sums over the targets: the divergence of softened scores, and the cross-entropy."""
        heat, same = self.shares.temperature, min(mine.shape[-1], theirs.shape[-1])
        soft = F.kl_div(
            F.log_softmax(mine[..., :same].float() / heat, -1),
            F.log_softmax(theirs[..., :same].float() / heat, -1),
            reduction="sum",
            log_target=True,
        )
        hard = F.cross_entropy(mine.float(), targets, ignore_index=IGNORED, reduction="sum")
        return heat**2 * soft, hard

    def _apart(self, mine: Tensor, theirs: Tensor) -> Tensor:
        """1 - cosine of two states; 0 where its factor is, as with networks of different widths."""
        if not self.shares.hidden:
            return mine.new_zeros(mine.shape[:-1])
        return 1 - F.cosine_similarity(mine.float(), theirs.float(), dim=-1)
