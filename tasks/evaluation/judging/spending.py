"""What a judge's requests cost, added up over all invocations of the same work.

A request's price is set aside before it is sent: its prompt by a guess, its reply as long as it may
be. The reply's own count of tokens takes its place; where an endpoint gives none, or a request may
have been served without a reply, what was set aside is booked. All of it stands in the reply store,
so that a budget holds for a work that is interrupted and gone on with, and after a kill.
"""

from collections.abc import Mapping
from typing import Any

from tasks.evaluation.judging.reply_store import ReplyStore

BYTES_PER_TOKEN = 3  # a low guess


class Spending:
    """The account of one work: USD at `prices` per million tokens in, out and, if given, of cached
    tokens in, and `each` for a request; at most `budget` USD, if given. Requests and tokens are
    counted likewise, at prices of 1.
    """

    def __init__(
        self,
        store: ReplyStore,
        work: str,
        prices: tuple[float, ...] | None = None,
        budget: float | None = None,
        each: float = 0.0,
    ) -> None:
        self._store, self._work = store, work
        self._prices, self._each, self.budget = prices, each, budget
        self._cost, self._under_way = 0.0, 0.0
        # Real price of a request over its estimate, the highest yet: a budget that is left in part
        # is better than one that is passed.
        self._ratio = store.ratio(work)

    @property
    def cost(self) -> float | None:
        """USD for the replies of this invocation; None where the price is unknown."""
        return None if self._prices is None else self._cost

    @property
    def total(self) -> float | None:
        """USD that this work has cost in all its invocations, what is perhaps lost included."""
        return None if self._prices is None else self._store.spent(self._work)

    def reserve(self, prompt: str, max_tokens: int) -> dict[str, float] | None:
        """Set a request's price aside: its tokens by a guess; None where the budget is used up."""
        guess = {
            "prompt_tokens": len(prompt.encode()) / BYTES_PER_TOKEN,
            "completion_tokens": float(max_tokens),
        }
        price = self._price(**guess)
        if not self._store.spend(self._work, price * self._ratio, self.budget):
            return None
        self._under_way += price
        return guess

    def free(self, guess: Mapping[str, float]) -> None:
        """Give back what was set aside for a request that cannot have been paid."""
        self._settle(guess, 0.0)

    def lose(self, guess: Mapping[str, float]) -> None:
        """Book what was set aside for a request that may have been paid, without a reply."""
        self._settle(guess, self._price(**guess) * self._ratio)

    def pay(self, guess: Mapping[str, float], reply: Mapping[str, Any]) -> None:
        """Book a reply by the tokens that it says it took."""
        used = _usage(reply)
        guessed = self._price(**guess)
        if used.get("prompt_tokens"):  # no prompt is empty: 0 is no count
            price = self._price(**{**guess, **used})
        else:
            price = guessed * self._ratio
        self._cost += price
        self._settle(guess, price)
        if guessed and price / guessed > self._ratio:
            raised, self._ratio = price / guessed - self._ratio, price / guessed
            self._store.spend(self._work, raised * self._under_way, ratio=self._ratio)

    def _settle(self, guess: Mapping[str, float], price: float) -> None:
        reserved = self._price(**guess)
        self._under_way -= reserved
        self._store.spend(self._work, price - reserved * self._ratio)

    def _price(
        self, prompt_tokens: float = 0, completion_tokens: float = 0, cached_tokens: float = 0
    ) -> float:
        """USD; cached tokens are among the prompt's and cost what they cost, if that is known."""
        into, out, *cached = self._prices or (0.0, 0.0)
        saved = cached_tokens * (into - cached[0]) if cached else 0.0
        return (prompt_tokens * into + completion_tokens * out - saved) / 1e6 + self._each


class Budgets:
    """The accounts of one work by unit (USD, requests, tokens): a request is sent only where every
    one of them has room for it.
    """

    def __init__(self, accounts: Mapping[str, Spending]) -> None:
        self._accounts, self.empty = accounts, ""

    @property
    def limited(self) -> bool:
        """Whether there is a budget of any unit."""
        return any(account.budget is not None for account in self._accounts.values())

    def reserve(self, prompt: str, max_tokens: int) -> dict[str, float] | None:
        """See `Spending`: in every account, or in none. Where it gives None, `empty` says which
        budget is used up.
        """
        held: list[Spending] = []
        guess: dict[str, float] | None = None
        for unit, account in self._accounts.items():
            found = account.reserve(prompt, max_tokens)
            if found is None:
                self.empty = f"the budget of {account.budget} {unit} is used up"
                for other in held:
                    other.free(guess or {})
                return None
            guess = found  # the same in all
            held.append(account)
        return guess

    def free(self, guess: Mapping[str, float]) -> None:
        """See `Spending`: in every account."""
        for account in self._accounts.values():
            account.free(guess)

    def lose(self, guess: Mapping[str, float]) -> None:
        """See `Spending`: in every account."""
        for account in self._accounts.values():
            account.lose(guess)

    def pay(self, guess: Mapping[str, float], reply: Mapping[str, Any]) -> None:
        """See `Spending`: in every account."""
        for account in self._accounts.values():
            account.pay(guess, reply)


def _usage(reply: Mapping[str, Any]) -> dict[str, float]:
    """Tokens in, out, and cached among those in, as far as the endpoint says."""
    usage = reply["usage"] if isinstance(reply["usage"], dict) else {}
    details = usage.get("prompt_tokens_details")
    found = {name: usage.get(name) for name in ("prompt_tokens", "completion_tokens")}
    found["cached_tokens"] = details.get("cached_tokens") if isinstance(details, dict) else None
    return {name: count for name, count in found.items() if type(count) is int and count >= 0}
