"""What is asked of a network: a prompt, how to go on from it, and who is told."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from torch import Tensor

from model.generation.ending import Token
from model.generation.sampling import GREEDY, Sampling

Reason = Literal["stop", "length", "cancelled"]


class Constraint(Protocol):
    """A language that what is written has to be a word of."""

    def restrict(self, logits_V: Tensor) -> None:
        """Set the scores of tokens that cannot come next to minus infinity, in place."""

    def accept(self, token: int) -> bool:
        """Note the token that was chosen; whether the word is complete and nothing may follow."""


@dataclass(frozen=True, kw_only=True)
class Penalties:
    """What is taken from the scores of tokens that occurred before.

    `repetition` divides positive scores and multiplies negative ones, of tokens of prompt and
    answer (Keskar et al. 2019, section 4.1); `frequency` is subtracted for each time a token was
    written, `presence` once (OpenAI's API). Raises `ValueError` for a value out of its range.
    """

    repetition: float = 1.0
    frequency: float = 0.0
    presence: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.repetition < math.inf:
            raise ValueError(f"repetition_penalty is {self.repetition}; it must be above 0")
        for name, value in (("frequency", self.frequency), ("presence", self.presence)):
            if not -2 <= value <= 2:
                raise ValueError(f"{name}_penalty is {value}; it must be from -2 to 2")


NO_PENALTIES = Penalties()


@dataclass(frozen=True, kw_only=True, eq=False)
class Request:
    """A prompt of at least one token, and at most `max_tokens` to follow, which may be 0.

    `on_token` is told each token as it is chosen, and says whether that was the last; a token of
    `stop_ids` ends the answer and is not told. `on_prompt`, where given, is told the prompt's own
    tokens from place `scored_from` on, with their log-probabilities; the first of all has none
    (NaN). `on_end` is told why it ended, once. All are called from the thread that runs the engine.
    """

    prompt: Sequence[int]
    max_tokens: int
    stop_ids: frozenset[int] = frozenset()
    sampling: Sampling = GREEDY
    seed: int = 0
    likeliest: int = 0
    scored_from: int = 0
    bias: Mapping[int, float] = field(default_factory=dict)
    penalties: Penalties = NO_PENALTIES
    constraint: Constraint | None = None
    on_token: Callable[[Token], bool] = lambda token: False
    on_prompt: Callable[[list[Token]], None] | None = None
    on_end: Callable[[Reason], None] = lambda reason: None

    @property
    def shaped(self) -> bool:
        """Whether its scores are changed before a token is chosen."""
        return bool(self.bias or self.constraint or self.penalties != NO_PENALTIES)
