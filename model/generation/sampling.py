"""Drawing the next token: temperature, top-k, top-p and min-p.

Letters: B rows, V vocabulary.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Which tokens may be drawn. Raises `ValueError` for a value out of its range."""

    temperature: float = 1.0
    """Divides the logits; 0 takes the likeliest token."""
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None

    def __post_init__(self) -> None:
        share = "above 0, at most 1"
        rules = [
            ("temperature", 0 <= self.temperature < math.inf, "at least 0"),
            ("top_k", self.top_k is None or self.top_k >= 1, "at least 1"),
            ("top_p", self.top_p is None or 0 < self.top_p <= 1, share),
            ("min_p", self.min_p is None or 0 < self.min_p <= 1, share),
        ]
        for name, holds, allowed in rules:
            if not holds:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be {allowed}")

    @property
    def greedy(self) -> bool:
        """Whether nothing is left to chance."""
        return self.temperature == 0 or self.top_k == 1


GREEDY = Sampling(temperature=0.0)


def restrict(logits_BV: Tensor, sampling: Sampling) -> Tensor:
    """Log-probabilities of softmax(logits / temperature), renormalised over what may be drawn.

    `top_k` keeps the k likeliest tokens (Fan et al. 2018); `top_p` the smallest set of likeliest
    tokens whose mass reaches p (Holtzman et al. 2020, section 3.1); `min_p` those at least p times
    as likely as the likeliest (Nguyen et al. 2024, section 3). In this order, each of what the one
    before has left.
    """
    log_probs_BV = (logits_BV.float() / sampling.temperature).log_softmax(-1)
    if sampling.top_k is not None and sampling.top_k < log_probs_BV.shape[-1]:
        # By place, not by value: ties with the k-th would let more than k through.
        best = log_probs_BV.topk(sampling.top_k, -1)
        nothing = torch.full_like(log_probs_BV, -math.inf)
        log_probs_BV = nothing.scatter(-1, best.indices, best.values)
    if sampling.top_p is not None and sampling.top_p < 1:
        log_probs_BV = log_probs_BV.masked_fill(~_nucleus(log_probs_BV, sampling.top_p), -math.inf)
    if sampling.min_p is not None:
        least_B1 = log_probs_BV.amax(-1, keepdim=True) + math.log(sampling.min_p)
        log_probs_BV = log_probs_BV.masked_fill(log_probs_BV < least_B1, -math.inf)
    return log_probs_BV.log_softmax(-1)


def _nucleus(log_probs_BV: Tensor, top_p: float) -> Tensor:
    """True for the fewest likeliest tokens whose probabilities sum to `top_p` or more."""
    falling_BV, order = log_probs_BV.sort(stable=True, dim=-1, descending=True)
    # Summed over a vocabulary in fp32, the edge of the nucleus would be rounding's choice.
    probs_BV = falling_BV.double().softmax(-1)
    mass_before = probs_BV.cumsum(-1) - probs_BV
    return torch.zeros_like(order, dtype=torch.bool).scatter(-1, order, mass_before < top_p)


def uniforms(seeds: Sequence[int], count: int) -> Tensor:
    """`count` numbers in [0, 1) for each seed, `[B, count]`; a seed means the same anywhere."""
    draws = [
        # Always on the CPU: another device draws other numbers from the same seed.
        torch.rand(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        for seed in seeds
    ]
    return torch.stack(draws)


def draw(log_probs_BV: Tensor, uniform_B: Tensor) -> Tensor:
    """The token of each row at which the probabilities of all up to it pass the row's number."""
    mass_BV = log_probs_BV.double().exp().cumsum(-1)
    passed_B1 = uniform_B.to(mass_BV.device)[:, None] * mass_BV[:, -1:]
    # To the right of equals: a token of probability 0 adds no mass and is never drawn.
    return torch.searchsorted(mass_BV, passed_B1, right=True)[:, 0]
