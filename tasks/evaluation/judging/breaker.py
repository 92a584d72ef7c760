"""When to stop asking an endpoint that fails for everyone, and which parameters it takes."""

import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from tasks.evaluation.judging.questions import Unscored

# By reason, how many failures in a row are put down to the endpoint and not to single requests: as
# many as stand here while it has never answered, twice as many once it has. `timeout` and `hangs`
# have low numbers, as each took long already. Refusals for other reasons (`REFUSALS`) count as
# equal only where their words are equal too, since they may be about what one request says.
FAILING = {"server_error": 5, "connection": 5, "not_json": 5, "rate_limited": 8}
PASSING = FAILING | {"timeout": 2, "hangs": 2}
LASTING = {"http_404": 5, "http_405": 5, "redirect": 3, "key_refused": 1, "out_of_quota": 1}
REFUSALS = 10
SHARED = 3  # failures in a row of one that has answered that are not taken for one row's
OPTIONAL = ("logprobs", "temperature", "top_p", "seed", "max_tokens", "max_completion_tokens")
THINKING_TOKENS = 4000
TOP_LOGPROBS = 20


class CircuitBreaker:
    """Counts identical failures in a row. A failure of `PASSING` counts once for all requests that
    were under way together, since an outage of a second fails many at a time. `open` is None or,
    once there were too many, the failure that every further request gets without being sent.
    """

    def __init__(self) -> None:
        self.open: Unscored | None = None
        self.in_a_row = 0
        self._failure, self._counted, self._answered = Unscored(""), 0.0, False

    def succeed(self) -> None:
        """Note a reply."""
        self.in_a_row, self._answered = 0, True

    def fail(self, failure: Unscored, sent: float) -> bool:
        """Note a failure of a request `sent` then (on the monotonic clock); whether by now all who
        wait should slow down.
        """
        if not self._same(failure):
            self._failure, self.in_a_row = failure, 0
        if not self.in_a_row or failure.reason not in PASSING or sent >= self._counted:
            self.in_a_row, self._counted = self.in_a_row + 1, time.monotonic()
        most = (PASSING | LASTING).get(failure.reason, REFUSALS)
        if self.in_a_row >= most * (1 + self._answered):
            self.open = failure
        return failure.reason in PASSING and self.in_a_row >= (SHARED if self._answered else 1)

    def _same(self, failure: Unscored) -> bool:
        by_reason = failure.reason in PASSING or failure.reason in LASTING
        return self._failure.reason == failure.reason if by_reason else self._failure == failure


class Parameters:
    """What an endpoint takes: some have no log-probabilities, models that think take no temperature
    and count tokens otherwise.

    Log-probabilities and the temperature are refused for all rows or none. A limit of tokens may be
    too much for one long row alone: it is left out for all only where it was never taken and a
    second row shows the same.
    """

    def __init__(self) -> None:
        self._dropped: set[str] = set()
        self._taken: set[str] = set()
        self._refused: defaultdict[str, set[str]] = defaultdict(set)  # prompts

    def of(self, body: dict[str, Any], without: Iterable[str]) -> dict[str, Any]:
        """The body with log-probabilities asked for, but for a body that says they are not wanted,
        without what is refused.
        """
        refused = self._dropped | set(without)
        refused |= set() if body.get("logprobs", True) else {"logprobs"}
        whole = {**body, "logprobs": True, "top_logprobs": TOP_LOGPROBS}
        if "logprobs" in refused:
            del whole["top_logprobs"]
        if "max_tokens" in refused:
            whole["max_completion_tokens"] = body["max_tokens"] + THINKING_TOKENS
        return {name: value for name, value in whole.items() if name not in refused}

    def take(self, sent: dict[str, Any], without: Iterable[str]) -> None:
        """Note that a body was answered, and what had to be left out for that."""
        self._taken |= set(sent)
        for name in without:
            self._refused[name].add(sent["messages"][0]["content"])
        twice = {name for name, prompts in self._refused.items() if len(prompts) > 1} - self._taken
        self._dropped |= twice | set(without) & {"logprobs", "temperature", "top_p", "seed"}


def refused_in(content: bytes | None, sent: Iterable[str]) -> set[str]:
    """The parameters that were sent and that an endpoint's refusal names."""
    return {name for name in OPTIONAL if name.encode() in (content or b"")} & set(sent)
