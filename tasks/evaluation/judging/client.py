"""A judge behind an OpenAI-compatible chat endpoint.

Requests run a few at a time, fewer when the endpoint says it is too many; each has a deadline over
all its attempts; replies are kept before they are read, so an interrupted run pays nothing twice.
The API key comes from the environment, goes to the one host it is meant for, and is never logged.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import aiohttp

from cluster.errors import BadInput
from cluster.home import subfolder
from tasks.evaluation.judging.endpoint import KEYS, Endpoint, api_key, check_url, proxy_of
from tasks.evaluation.judging.questions import (
    ANSWER_TOKENS,
    Distribution,
    Question,
    Unscored,
    Verdict,
)
from tasks.evaluation.judging.rate_limit import RateLimit, retry_after
from tasks.evaluation.judging.replies import Reply, frequencies, read_choice, read_probabilities
from tasks.evaluation.judging.reply_store import ReplyStore, reply_key

TEXT_TOKENS = 400
TOP_LOGPROBS = 20
OPTIONAL = ("logprobs", "temperature", "max_tokens")
THINKING_TOKENS = 4000
PERHAPS_PAID = ("timeout", "connection", "not_json", "too_large")
BEGUN = 4  # questions begun for each request that may be under way
BYTES_PER_TOKEN = 3  # a low guess, for estimating a request's cost before it is sent
Result = TypeVar("Result")
Sent = dict[str, Any] | Unscored


class EndpointJudge:
    """Answers questions through an endpoint. Raises BadInput for a URL it must not use."""

    writes = True

    def __init__(self, endpoint: Endpoint, store: ReplyStore) -> None:
        self._key = api_key()
        check_url(endpoint.url, self._key is not None)
        if endpoint.budget is not None and endpoint.prices is None:
            raise BadInput(
                f"a budget of {endpoint.budget} USD cannot be kept: the price of "
                f"'{endpoint.model}' is unknown; give its USD per million tokens, in and out"
            )
        self.endpoint, self.name, self._store = endpoint, endpoint.model, store
        self.calls, self.reused, self.shortened = 0, 0, 0
        self.tokens: Counter[str] = Counter()
        self._reserved, self._lost = 0.0, 0.0  # USD under way, and perhaps spent for nothing
        self._estimate = 1.0  # real price of a request over its estimate, the highest yet
        self._dropped: set[str] = set()  # parameters that this endpoint does not take
        self._refused: Unscored | None = None
        self._under_way: dict[str, asyncio.Future[Sent]] = {}
        self._client: aiohttp.ClientSession
        self._rate_limit = RateLimit(endpoint.concurrency)
        self._proxy = proxy_of(endpoint.url)

    @property
    def cost(self) -> float | None:
        """USD spent by this run; None where the price is unknown."""
        if self.endpoint.prices is None:
            return None
        return self._price(**self.tokens)

    def distributions(self, questions: Sequence[Question]) -> list[Verdict]:
        """The answers to all questions, in order."""
        return self._run([self._distribution(question) for question in questions])

    def texts(
        self, prompts: Sequence[str], sample: int = 0, max_tokens: int = TEXT_TOKENS
    ) -> list[str | Unscored]:
        """Free text after each prompt, another one for each `sample`."""
        return self._run([self._text(prompt, sample, max_tokens) for prompt in prompts])

    def _run(self, coroutines: Sequence[Coroutine[Any, Any, Result]]) -> list[Result]:
        """Their results in order. A few are begun at a time, each as the next place is free."""

        async def all_of_them() -> list[Result]:
            # Under a budget the first replies tell what a request really costs.
            first = None if self.endpoint.budget is None else 1
            # Anew for each run: its futures belong to one event loop.
            self._rate_limit = RateLimit(self.endpoint.concurrency, first)
            found: dict[int, Result] = {}
            waiting = iter(enumerate(coroutines))

            async def work() -> None:
                # All workers share the iterator: each takes the next question when it is free.
                for number, coroutine in waiting:
                    found[number] = await coroutine

            workers = min(len(coroutines), BEGUN * self.endpoint.concurrency)
            async with _client(self.endpoint, self._key) as self._client:
                await asyncio.gather(*(work() for _ in range(workers)))
            return [found[number] for number in range(len(coroutines))]

        return asyncio.run(all_of_them())

    async def _distribution(self, question: Question) -> Verdict:
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
        return verdict if isinstance(verdict, Unscored) else replace(verdict, words=first.content)

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
        assert failed is not None
        return failed

    async def _text(self, prompt: str, sample: int, max_tokens: int) -> str | Unscored:
        reply = await self._reply(prompt, sample, max_tokens, 1.0 if sample else 0.0)
        return reply if isinstance(reply, Unscored) else reply.content

    async def _reply(
        self, prompt: str, sample: int, max_tokens: int, temperature: float
    ) -> Reply | Unscored:
        """The kept reply, or a new one, which is kept."""
        parameters = {"max_tokens": max_tokens, "temperature": temperature}
        key = reply_key(self.name, parameters, prompt, sample)
        kept = self._store.get(key)
        if kept is None:
            body = {
                "model": self.name,
                "messages": [{"role": "user", "content": prompt}],
                **parameters,
            }
            reserved = self._price(len(prompt.encode()) / BYTES_PER_TOKEN, max_tokens)
            got = await self._once(key, lambda: self._send(body, key, reserved))
            return got if isinstance(got, Unscored) else _reply_of(got)
        self.reused += 1
        return _reply_of(kept)

    async def _once(self, key: str, send: Callable[[], Coroutine[Any, Any, Sent]]) -> Sent:
        """Send, unless the same request is under way already; then share its outcome."""
        if key not in self._under_way:
            self._under_way[key] = asyncio.ensure_future(send())
        try:
            return await self._under_way[key]
        finally:
            # None: another that shared the outcome has been here already.
            self._under_way.pop(key, None)

    async def _send(self, body: dict[str, Any], key: str, reserved: float) -> Sent:
        """Attempts until a reply, a failure that repeating cannot mend, or the deadline."""
        left = self.endpoint.deadline
        outcome, last = Unscored("timeout"), self.endpoint.attempts - 1
        for attempt in range(self.endpoint.attempts):
            async with self._rate_limit:
                # Inside the gate: what was spent, or refused, while this one waited counts.
                if stop := self._refused or self._over_budget(reserved):
                    return stop
                # From here: time spent waiting at the gate is not taken off the endpoint's.
                started = time.monotonic()
                self._reserved += reserved
                self._store.ask(key)
                # Half of what is left, so that one that hangs leaves time for another.
                reply, wait = await self._attempt(body, left / (2 if attempt < last else 1))
                self._reserved -= reserved
                left -= time.monotonic() - started
                if isinstance(reply, dict):
                    self._book(key, reply, reserved)
                    self._rate_limit.speed_up()
                    return reply
                if reply.reason in PERHAPS_PAID:
                    self._lost += reserved * self._estimate
            outcome = reply
            if wait is None:
                break
            wait = max(min(wait, self.endpoint.patience), self.endpoint.backoff * 2**attempt)
            if wait >= left or attempt == last:
                break
            left -= wait
            if outcome.reason == "rate_limited":
                self._rate_limit.slow_down(wait, started)
            await asyncio.sleep(wait)
        return outcome

    def _book(self, key: str, reply: dict[str, Any], reserved: float) -> None:
        """Keep a reply, and what it cost."""
        self._store.answer(key, reply)
        used = _usage(reply)
        self.tokens.update(used)
        if reserved:
            # The highest: a budget that is left in part is better than one that is passed.
            self._estimate = max(self._estimate, self._price(**used) / reserved)

    async def _attempt(
        self, body: dict[str, Any], seconds: float
    ) -> tuple[dict[str, Any] | Unscored, float | None]:
        """One request: the reply's JSON, or why there is none and after how many seconds to try
        again (None: never).
        """
        sent = self._accepted(body)
        try:
            async with asyncio.timeout(max(seconds, 0.001)):
                status, headers, content = await self._post(sent)
                named = {name for name in OPTIONAL if name.encode() in (content or b"")}
                if status == 400 and not named and "logprobs" in sent:
                    # Perhaps for the log-probabilities, perhaps for what is in this one request.
                    bare = {k: v for k, v in sent.items() if "logprobs" not in k}
                    status, headers, content = await self._post(bare)
                    self._dropped |= {"logprobs"} if status == 200 else set()
        except TimeoutError:
            return Unscored("timeout", f"no whole reply within {seconds:.1f} s"), 0.0
        except aiohttp.ClientError as error:
            return Unscored("connection", f"{type(error).__name__}: {error}"), 0.0
        if status == 400 and named & set(sent):
            self._dropped |= named
            return Unscored("http_400", self._shown(content)), 0.0
        return self._classify(status, headers, content)

    def _accepted(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body with log-probabilities asked for, without what the endpoint has refused: some
        have no log-probabilities, models that think take no temperature and count tokens otherwise.
        """
        whole = {**body, "logprobs": True, "top_logprobs": TOP_LOGPROBS}
        if "logprobs" in self._dropped:
            del whole["top_logprobs"]
        if "max_tokens" in self._dropped:
            whole["max_completion_tokens"] = body["max_tokens"] + THINKING_TOKENS
        return {name: value for name, value in whole.items() if name not in self._dropped}

    async def _post(self, body: dict[str, Any]) -> tuple[int, Mapping[str, str], bytes | None]:
        """Status, headers and content; the content is None beyond the allowed size."""
        self.calls += 1
        url = self.endpoint.chat_url
        # Followed, a redirect would take the request to a host that nobody named.
        async with self._client.post(
            url, json=body, proxy=self._proxy, allow_redirects=False
        ) as response:
            content = b""
            async for piece in response.content.iter_any():
                content += piece
                # Counted as it comes, for a header that names the
                # length need not be there, or be true.
                if len(content) > self.endpoint.max_bytes:
                    return response.status, response.headers, None
            return response.status, response.headers, content

    def _classify(
        self, status: int, headers: Mapping[str, str], content: bytes | None
    ) -> tuple[dict[str, Any] | Unscored, float | None]:
        if content is None:
            return Unscored("too_large", f"over {self.endpoint.max_bytes} bytes"), None
        if status == 429:
            return Unscored("rate_limited", "status 429"), retry_after(headers)
        if status == 408 or status >= 500:
            return Unscored("server_error", f"status {status}"), retry_after(headers)
        if status in (401, 403):
            detail = f"status {status}: set {KEYS[0]} to a key this endpoint accepts"
            self._refused = Unscored("key_refused", detail)
            return self._refused, None
        if 300 <= status < 400:
            return Unscored("redirect", f"status {status}; redirects are not followed"), None
        if status != 200:
            return Unscored(f"http_{status}", self._shown(content)), None
        found = _envelope(content)
        return found, 0.0 if isinstance(found, Unscored) else None

    def _over_budget(self, reserved: float) -> Unscored | None:
        budget = self.endpoint.budget
        if budget is None:
            return None
        expected = (self._reserved + reserved) * self._estimate
        if (self.cost or 0.0) + self._lost + expected <= budget:
            return None
        return Unscored("budget", f"the budget of {budget} USD is used up")

    def _price(
        self, prompt_tokens: float = 0, completion_tokens: float = 0, cached_tokens: float = 0
    ) -> float:
        """USD; cached tokens are among the prompt's and cost what they cost, if that is known."""
        into, out, *cached = self.endpoint.prices or (0.0, 0.0)
        saved = cached_tokens * (into - cached[0]) if cached else 0.0
        return (prompt_tokens * into + completion_tokens * out - saved) / 1e6

    def _shown(self, content: bytes | None) -> str:
        """The start of an endpoint's message, which may repeat the key it was given."""
        text = (content or b"")[:200].decode(errors="replace")
        return text.replace(self._key, "[key]") if self._key else text


def _client(endpoint: Endpoint, key: str | None) -> aiohttp.ClientSession:
    """An open client. Each attempt has a time limit of its own."""
    return aiohttp.ClientSession(
        headers={"Authorization": f"Bearer {key}"} if key else {},
        connector=aiohttp.TCPConnector(limit=endpoint.concurrency),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
    )


def _envelope(content: bytes) -> dict[str, Any] | Unscored:
    """The parts of a chat completion that are kept."""
    try:
        body = json.loads(content)
        choice = body["choices"][0]
        text = choice["message"].get("content") or choice["message"].get("refusal") or ""
        reason = choice.get("finish_reason") or "stop"
        listed = (choice.get("logprobs") or {}).get("content") or []
        tokens = [
            [str(t["token"]), [[str(a["token"]), float(a["logprob"])] for a in _alternatives(t)]]
            for t in listed
        ]
        usage = body.get("usage") or {}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        text = None
    if not isinstance(text, str):
        start = content[:60].decode(errors="replace")
        return Unscored("not_json", f"not a chat completion: {start!r}")
    return {"content": text, "finish_reason": reason, "tokens": tokens, "usage": usage}


def _alternatives(token: dict[str, Any]) -> list[dict[str, Any]]:
    """Those of a token, the token itself where none are listed."""
    return token.get("top_logprobs") or [token]


def _usage(reply: dict[str, Any]) -> dict[str, int]:
    """Tokens in, out, and cached among those in, as far as the endpoint says."""
    usage = reply["usage"] if isinstance(reply["usage"], dict) else {}
    details = usage.get("prompt_tokens_details")
    found = {name: usage.get(name) for name in ("prompt_tokens", "completion_tokens")}
    found["cached_tokens"] = details.get("cached_tokens") if isinstance(details, dict) else None
    return {name: count for name, count in found.items() if type(count) is int and count >= 0}


def _reply_of(kept: dict[str, Any]) -> Reply:
    tokens = tuple((t, tuple((a, float(p)) for a, p in others)) for t, others in kept["tokens"])
    return Reply(kept["content"], kept["finish_reason"], tokens)


def endpoint_judge(model: str | None, url: str | None, samples: int = 1) -> EndpointJudge:
    """The judge behind an endpoint. Raises BadInput when one of name and address is missing."""
    if url is None or model is None:
        given, missing = ("evaluate.judge.model", "placement.judge_url")
        if url is not None:
            given, missing = missing, given
        raise BadInput(f"{given} is set and {missing} is not; set both, or neither to judge here")
    endpoint = Endpoint(url, model, samples=samples)
    return EndpointJudge(endpoint, ReplyStore(subfolder("judge") / "replies.sqlite"))
