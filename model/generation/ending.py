"""When a continuation ends, and what it is then."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple


def never(tokens: Sequence[int]) -> bool:
    """Where no `stopped` is given: whatever a continuation says, it goes on."""
    return False


@dataclass(frozen=True)
class Ending:
    """A continuation ends before a token of `stop_ids`, after the token with which `stopped` holds
    of all its tokens, or after `max_tokens`.
    """

    max_tokens: int
    stop_ids: frozenset[int] = frozenset()
    stopped: Callable[[Sequence[int]], bool] = never

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens is {self.max_tokens}; it must be at least 1")


class Token(NamedTuple):
    """A token and its log-probability in nats, by the network itself: whatever sampling kept.

    `likeliest` are the ids and log-probabilities of the step's likeliest tokens, when asked for.
    """

    id: int
    log_prob: float
    likeliest: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Continuation:
    """What follows a prompt, without the stop id that ended it.

    `reason` is `length` where it was cut off at `max_tokens`.
    """

    tokens: tuple[Token, ...]
    reason: Literal["stop", "length"]

    @property
    def ids(self) -> list[int]:
        """The tokens' ids."""
        return [token.id for token in self.tokens]

    @property
    def log_prob(self) -> float:
        """The sum over the tokens, in nats."""
        return sum(token.log_prob for token in self.tokens)
