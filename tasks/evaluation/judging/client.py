"""A judge behind an OpenAI-compatible chat endpoint: what it is asked, and how its replies count.

Each reply is kept before it is read, so that an interrupted run pays nothing twice.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from cluster.errors import BadInput
from tasks.evaluation.judging.endpoint import Endpoint
from tasks.evaluation.judging.free_text import thoughts_end
from tasks.evaluation.judging.questions import (
    ANSWER_TOKENS,
    Distribution,
    Question,
    Unscored,
    Verdict,
)
from tasks.evaluation.judging.replies import (
    Reply,
    frequencies,
    no_answer,
    read_choice,
    read_probabilities,
)
from tasks.evaluation.judging.reply_store import ReplyStore, reply_key
from tasks.evaluation.judging.sending import Sender, Sent
from tasks.evaluation.judging.spending import Budgets, Spending

TEXT_TOKENS = 400
BEGUN = 4  # questions begun for each request that may be under way
Result = TypeVar("Result")


class EndpointJudge:
    """Answers questions through an endpoint; what a `work` costs is added up over its invocations.
    Raises BadInput for a URL it must not use.
    """

    writes = True

    def __init__(self, endpoint: Endpoint, store: ReplyStore, work: str = "") -> None:
        if endpoint.budget is not None and endpoint.prices is None:
            raise BadInput(
                f"a budget of {endpoint.budget} USD cannot be kept: the price of "
                f"'{endpoint.model}' is unknown; give its USD per million tokens, in and out"
            )
        self.endpoint, self.name, self._store = endpoint, endpoint.model, store
        self.repeats, self.reused, self.shortened = endpoint.repeats, 0, 0
        self.spending = Spending(store, work, endpoint.prices, endpoint.budget)
        self.requests = Spending(
            store, f"{work}#requests", (0.0, 0.0), endpoint.most_requests, each=1.0
        )
        self.tokens = Spending(store, f"{work}#tokens", (1e6, 1e6), endpoint.most_tokens)
        counts = {"requests": self.requests, "tokens": self.tokens} if work else {}
        self._sender = Sender(endpoint, store, Budgets({"USD": self.spending, **counts}))
        self._under_way: dict[str, asyncio.Future[Sent]] = {}

    @property
    def calls(self) -> int:
        """Requests sent."""
        return self._sender.calls

    @property
    def cost(self) -> float | None:
        """USD spent by this run; None where the price is unknown."""
        return self.spending.cost

    def distributions(self, questions: Sequence[Question]) -> list[Verdict]:
        """The answers to all questions, in order."""
        return self._run([self._distribution(question) for question in questions])

    def texts(
        self, prompts: Sequence[str], sample: int = 0, max_tokens: int = TEXT_TOKENS
    ) -> list[str | Unscored]:
        """Free text after each prompt, another one for each `sample`."""
        return self._run([self._text(prompt, sample, max_tokens) for prompt in prompts])

    def echoes(self, prompts: Sequence[str]) -> list[dict[str, Any] | Unscored]:
        """The `logprobs` of a completion for each prompt, the prompt's own tokens among them."""
        return self._run([self._echo(prompt) for prompt in prompts])

    def replies(
        self, prompts: Sequence[str], parameters: Sequence[Mapping[str, Any]]
    ) -> list[Reply | Unscored]:
        """The reply to each prompt as it is, by parameters of its own, `max_tokens` among them."""
        pairs = zip(prompts, parameters, strict=True)
        return self._run([self._asked(text, 0, {**own, "logprobs": False}) for text, own in pairs])

    def _run(self, coroutines: Sequence[Coroutine[Any, Any, Result]]) -> list[Result]:
        """Their results in order. A few are begun at a time, each as the next place is free."""

        async def all_of_them() -> list[Result]:
            found: dict[int, Result] = {}
            waiting = iter(enumerate(coroutines))

            async def work() -> None:
                # All workers share the iterator: each takes the next question when it is free.
                for number, coroutine in waiting:
                    found[number] = await coroutine

            workers = min(len(coroutines), BEGUN * self.endpoint.concurrency)
            async with self._sender.opened():
                await asyncio.gather(*(work() for _ in range(workers)))
            return [found[number] for number in range(len(coroutines))]

        return asyncio.run(all_of_them())

    async def _distribution(self, question: Question) -> Verdict:
        """By the first reply's log-probabilities; without any, by the frequencies of `samples`."""
        first, answer = await self._answer(question, 0)
        verdict: Verdict
        if isinstance(first, Reply) and (found := read_probabilities(first, question.choices)):
            verdict = Distribution(found[0], "logprobs", found[1])
        else:
            numbers = range(1, self.endpoint.samples)
            rest = await asyncio.gather(*(self._answer(question, i) for i in numbers))
            verdict = frequencies([answer, *(read for _, read in rest)], question.choices)
        if question.tokens == ANSWER_TOKENS or isinstance(first, Unscored):
            return verdict
        words = first.content[thoughts_end(first.content) :].lstrip()
        return verdict if isinstance(verdict, Unscored) else replace(verdict, words=words)

    async def _answer(
        self, question: Question, sample: int
    ) -> tuple[Reply | Unscored, str | Unscored]:
        """A reply and the answer it gives; one that gives none is asked for again, as a further
        sample, a few times. What never comes keeps the first reason.
        """
        samples, prompt = self.endpoint.samples, question.text()
        # With several samples the first is drawn like the others, so that it can be one of them.
        temperature = 1.0 if samples > 1 else 0.0
        failed: tuple[Reply | Unscored, Unscored] | None = None
        for again in range(self.endpoint.repeats + 1):
            number = sample + again * samples
            warmth = temperature or float(again > 0)
            reply = await self._reply(prompt, number, question.tokens, warmth)
            if isinstance(reply, Unscored):
                return failed or (reply, reply)
            read = read_choice(reply, question.choices)
            if isinstance(read, str):
                return reply, read
            failed = failed or (reply, read)
            if read.reason == "thoughts_only":
                break  # as long a one would end there again
        assert failed is not None
        return failed

    async def _text(self, prompt: str, sample: int, max_tokens: int) -> str | Unscored:
        reply = await self._reply(prompt, sample, max_tokens, 1.0 if sample else 0.0)
        if isinstance(reply, Unscored):
            return reply
        return reply.content[thoughts_end(reply.content) :].lstrip() or no_answer(reply)

    async def _echo(self, prompt: str) -> dict[str, Any] | Unscored:
        parameters = {"max_tokens": 1, "temperature": 0.0, "logprobs": 1, "echo": True}
        key = reply_key(self.endpoint.completions_url, self.name, parameters, prompt, 0)
        body = {"model": self.name, "prompt": prompt, **parameters}
        kept = self._store.get(key) or await self._once(key, lambda: self._sender.send(body, key))
        return kept if isinstance(kept, Unscored) else dict(kept["scored"])

    async def _reply(
        self, prompt: str, sample: int, max_tokens: int, temperature: float
    ) -> Reply | Unscored:
        most = self.endpoint.max_tokens or max_tokens
        return await self._asked(prompt, sample, {"max_tokens": most, "temperature": temperature})

    async def _asked(
        self, prompt: str, sample: int, parameters: Mapping[str, Any]
    ) -> Reply | Unscored:
        """The kept reply, or a new one, which is kept."""
        key = reply_key(self.endpoint.chat_url, self.name, parameters, prompt, sample)
        if kept := self._store.get(key):
            self.reused += 1
            return _reply_of(kept)
        messages = [{"role": "user", "content": prompt}]
        body = {"model": self.name, "messages": messages, **parameters}
        got = await self._once(key, lambda: self._sender.send(body, key))
        if isinstance(got, Unscored):
            return got
        return _reply_of(got)

    async def _once(self, key: str, send: Callable[[], Coroutine[Any, Any, Sent]]) -> Sent:
        """Send, unless the same request is under way already; then share its outcome."""
        if key not in self._under_way:
            self._under_way[key] = asyncio.ensure_future(send())
        try:
            return await self._under_way[key]
        finally:
            # None: another that shared the outcome has been here already.
            self._under_way.pop(key, None)


def _reply_of(kept: dict[str, Any]) -> Reply:
    tokens = tuple((t, tuple((a, float(p)) for a, p in others)) for t, others in kept["tokens"])
    return Reply(kept["content"], kept["finish_reason"], tokens)


def endpoint_judge(
    model: str | None, url: str | None, samples: int = 1, max_tokens: int | None = None
) -> EndpointJudge:
    """The judge behind an endpoint. Raises BadInput when one of name and address is missing."""
    if url is None or model is None:
        given, missing = ("evaluate.judge.model", "placement.judge_url")
        if url is not None:
            given, missing = missing, given
        raise BadInput(f"{given} is set and {missing} is not; set both, or neither to judge here")
    endpoint = Endpoint(url, model, samples=samples, max_tokens=max_tokens)
    return EndpointJudge(endpoint, ReplyStore.of_home())
