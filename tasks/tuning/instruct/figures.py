"""What stage `instruct` says of held-out answers: their loss, how much of it the tuning took away,
and what the material that rows ask about is worth.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from model.objectives.modules import CausalLM
from tasks.evaluation.statistics.intervals import mean_interval
from tasks.tokens.chat import NO_LOSS
from tasks.training.micro_batches import on_device

SCORED_ROWS = 8
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Answers:
    """Mean negative log-likelihood of all answers' tokens; of each answer, in the order of the
    examples, the sum and its tokens, `[N]`. In nats.
    """

    loss: float
    nats: np.ndarray
    tokens: np.ndarray

    def at(self, numbers: Sequence[int]) -> "Answers":
        """Some of them."""
        nats, tokens = self.nats[numbers], self.tokens[numbers]
        return Answers(float(nats.sum() / tokens.sum()), nats, tokens)

    @property
    def means(self) -> np.ndarray:
        """Nats a token of each answer, `[N]`."""
        return self.nats / self.tokens


def batches(rows: Arrays) -> Iterator[Arrays]:
    """All rows in order, a few at a time."""
    for first in range(0, len(rows["inputs"]), SCORED_ROWS):
        yield {key: array[first : first + SCORED_ROWS] for key, array in rows.items()}


@torch.no_grad()
def answers(module: CausalLM, rows: Arrays, device: str) -> Answers:
    """How likely a model finds the answers of packed rows."""
    module.eval().to(device)
    total, nats, tokens = 0.0, list[np.ndarray](), list[np.ndarray]()
    for batch in batches(rows):
        losses = module.token_losses(**on_device(batch, module, device)).double()
        total += losses.sum().item()
        each = losses.cpu().numpy()
        for row, documents in enumerate(batch["documents"]):
            taught = batch["targets"][row] != NO_LOSS
            nats.append(np.bincount(documents, each[row])[1:])
            tokens.append(np.bincount(documents, taught)[1:])
    module.cpu()
    counts = np.concatenate(tokens)
    return Answers(total / int(counts.sum()), np.concatenate(nats), counts)


def gain(name: str, worse: Answers, better: Answers) -> dict[str, float]:
    """The mean over rows of what an answer costs less, in nats a token, with its 95 %."""
    apart = worse.means - better.means
    low, high = mean_interval(apart.tolist())
    return {name: float(apart.mean()), f"{name}_low": low, f"{name}_high": high}
