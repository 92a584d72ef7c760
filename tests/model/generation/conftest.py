"""A toy decoder whose next-token probabilities are far from even."""

from collections.abc import Callable
from functools import cache

import pytest
import torch

from model.shapes import from_depth
from model.transformer import Transformer

VOCAB = 7


@pytest.fixture(scope="session")
def network() -> Transformer:
    torch.manual_seed(4)
    network = Transformer(from_depth(2, vocab_size=VOCAB, context=32, width=32, heads=2))
    for parameter in network.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.4)
    return network.eval()


@pytest.fixture(scope="session")
def log_probs(network: Transformer) -> Callable[[list[int]], torch.Tensor]:
    """Next-token log-probabilities after some ids, read afresh."""

    @cache
    @torch.no_grad()
    def after(*ids: int) -> torch.Tensor:
        return network.logits(network(torch.tensor([ids])))[0, -1].log_softmax(-1)

    return lambda ids: after(*ids)


@pytest.fixture(scope="session")
def score(log_probs) -> Callable[[list[int], tuple[int, ...]], float]:
    """log p(answer | prompt), token by token."""

    def total(prompt: list[int], answer: tuple[int, ...]) -> float:
        steps = enumerate(answer)
        return sum(float(log_probs([*prompt, *answer[:i]])[token]) for i, token in steps)

    return total
