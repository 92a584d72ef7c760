"""An exam tried out before a network is there to sit it: what cannot be asked, or says nothing
whoever answers, is found before a training begins.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from model.config import ModelConfig
from model.encoder_decoder import build
from model.generation import Scored
from model.generation.reader import check
from tasks.evaluation.exams.candidates import NetworkCandidate, Progress
from tasks.evaluation.exams.paper import Paper, sit
from tasks.evaluation.judging.questions import Unscored

if TYPE_CHECKING:
    from tasks.tokens.encoder import Encoder


def try_out(paper: Paper, config: ModelConfig, encoder: "Encoder", start: Sequence[int]) -> None:
    """Put a paper to a network of a shape that has no weights. Raises ValueError as a sitting does:
    for rows that are too long or have no tokens, for choices that are all the same.
    """
    with torch.device("meta"):
        network = build(config)
    sit(paper, Trial(network, encoder, start), lambda done, of: None)


class Trial(NetworkCandidate):
    """Answers without weights: it writes nothing, and its likelihoods are made up from the tokens,
    so that two choices are alike only where their tokens are.
    """

    def write(
        self, prompts: Sequence[str], max_tokens: int, stop: Sequence[str], progress: Progress
    ) -> list[str | Unscored]:
        """Empty texts. Raises ValueError where `max_tokens` do not fit behind a prompt."""
        ids = [self._read_first(prompt) for prompt in prompts]
        check(self._network, ids, max_tokens, self._start)
        return [""] * len(ids)

    def _score(
        self, asked: Sequence[tuple[list[int], list[list[int]]]], progress: Progress
    ) -> list[list[Scored]]:
        for prompt, choices in asked:
            if not min(map(len, choices)):
                raise ValueError("a choice has no tokens; each needs at least one")
            check(self._network, [prompt], max(map(len, choices)) - 1, self._start)
        return [[_made_up(prompt, choice) for choice in choices] for prompt, choices in asked]


def _made_up(prompt: Sequence[int], choice: Sequence[int]) -> Scored:
    return Scored(-1.0 - hash((*prompt, -1, *choice)) % 2**40 / 2**30, greedy=False)
