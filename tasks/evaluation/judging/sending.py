"""Requests to an OpenAI-compatible chat endpoint: sent a few at a time, repeated, paid and kept.

Fewer run at a time when the endpoint says it is too many; each has a deadline over all its
attempts; an endpoint that fails for everyone is soon asked no more. Replies are kept before they
are read. The API key goes to the one host it is meant for, and is never logged or kept.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from cluster.addresses import open_socket
from tasks.evaluation.judging.breaker import CircuitBreaker, Parameters, refused_in
from tasks.evaluation.judging.endpoint import Endpoint, api_key, check_url, proxy_of
from tasks.evaluation.judging.questions import Unscored
from tasks.evaluation.judging.rate_limit import RateLimit, retry_after
from tasks.evaluation.judging.reply_store import ReplyStore
from tasks.evaluation.judging.silence import Hangs, Silence
from tasks.evaluation.judging.spending import Budgets

PERHAPS_PAID = ("timeout", "hangs", "connection", "not_json", "too_large")
INVALID = (400, 422)
THOUGHTS = ("reasoning_content", "reasoning")
MASK = "[key]"
MOST_DOUBLED = 4
Sent = dict[str, Any] | Unscored
Attempted = tuple[Sent, float | None]


@dataclass
class Request:
    """A body to send, under the key that its reply is kept by, what it has left of its deadline in
    seconds, and the parameters to leave out of it.
    """

    body: dict[str, Any]
    key: str
    left: float
    without: set[str] = field(default_factory=set)

    @property
    def prompt(self) -> str:
        """The text it sends."""
        body = self.body
        return str(body["prompt"] if "prompt" in body else body["messages"][0]["content"])


class Sender:
    """Sends requests to an endpoint. Raises BadInput for a URL it must not use."""

    def __init__(self, endpoint: Endpoint, store: ReplyStore, budgets: Budgets) -> None:
        self._key = api_key(endpoint)
        check_url(endpoint, self._key is not None)
        self.endpoint, self._store, self._budgets = endpoint, store, budgets
        self.calls = 0
        self._breaker, self._parameters = CircuitBreaker(), Parameters()
        self._proxy = proxy_of(endpoint.url)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """The connections and the limit of requests at a time, for one event loop: futures and
        connections belong to the loop they were made in.
        """
        # Under a budget the first replies tell what a request really costs.
        first = 1 if self._budgets.limited else None
        self._rate_limit = RateLimit(self.endpoint.concurrency, first)
        self._ended = asyncio.Event()
        self._silence = Silence(self._ask_models)
        async with _client(self.endpoint, self._key) as self._client:
            yield

    async def send(self, body: dict[str, Any], key: str) -> Sent:
        """Attempts until a reply, a failure that repeating cannot mend, or the deadline."""
        request = Request(body, key, self.endpoint.deadline)
        outcome: Sent = Unscored("timeout")
        for attempt in range(self.endpoint.attempts):
            last = attempt + 1 == self.endpoint.attempts
            async with self._rate_limit:
                # From here: time spent waiting at the gate is not taken off the endpoint's.
                started = time.monotonic()
                # Half of what is left, so that one that hangs leaves time for another.
                outcome, wait = await self._paid(request, request.left / (1 if last else 2))
                request.left -= time.monotonic() - started
            if isinstance(outcome, dict):
                return outcome
            pause = self._pause(request, outcome, wait, attempt, started)
            if pause is None or last:
                break
            request.left -= pause
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), pause)
        return outcome

    def _pause(
        self, request: Request, failure: Unscored, wait: float | None, attempt: int, sent: float
    ) -> float | None:
        """Seconds to the next attempt, for everyone where the failure is everyone's; None where
        there is to be none.
        """
        everyone = self._breaker.fail(failure, sent) or failure.reason == "rate_limited"
        if self._breaker.open:
            self._ended.set()
        if wait is None or self._breaker.open:
            return None
        times = max(attempt, min(self._breaker.in_a_row - 1, MOST_DOUBLED))
        pause = max(min(wait, self.endpoint.patience), self.endpoint.backoff * 2**times)
        if pause >= request.left:
            return None
        if everyone:
            self._rate_limit.slow_down(pause, sent)
        return pause

    async def _paid(self, request: Request, seconds: float) -> Attempted:
        """One attempt, unless all has ended or no money is left; what it cost is booked."""
        # Inside the gate: what was spent, or refused, while this one waited counts.
        if self._breaker.open:
            return self._breaker.open, None
        guess = self._budgets.reserve(request.prompt, request.body["max_tokens"])
        if guess is None:
            return Unscored("budget", self._budgets.empty), None
        self._store.ask(request.key)
        reply, wait = await self._attempt(request, seconds)
        if isinstance(reply, dict):
            self._store.answer(request.key, reply)
            self._budgets.pay(guess, reply)
            self._breaker.succeed()
            self._rate_limit.speed_up()
        elif reply.reason in PERHAPS_PAID:
            self._budgets.lose(guess)
        else:
            self._budgets.free(guess)
        return reply, wait

    async def _attempt(self, request: Request, seconds: float) -> Attempted:
        """One request: the reply's JSON, or why there is none and after how many seconds to try
        again (None: never).
        """
        sent, refused = self._parameters.of(request.body, request.without), set[str]()
        try:
            async with asyncio.timeout(max(seconds, 0.001)):
                status, headers, content = await self._silence.watched(self._post(sent))
                if status in INVALID:
                    refused = refused_in(content, sent)
                if status in INVALID and not refused and "logprobs" in sent:
                    # Perhaps for the log-probabilities, perhaps for what is in this one request.
                    bare = self._parameters.of(request.body, request.without | {"logprobs"})
                    status, headers, content = await self._silence.watched(self._post(bare))
                    request.without |= {"logprobs"} if status == 200 else set()
        except TimeoutError:
            return Unscored("timeout", f"no whole reply within {seconds:.1f} s"), 0.0
        except Hangs as error:
            asked = f"{error}, and no answer to GET {self.endpoint.models_url}"
            return Unscored("hangs", f"{asked}: it hangs, and is not slow; start it again"), 0.0
        except aiohttp.ClientError as error:
            return Unscored("connection", f"{type(error).__name__}: {error}"), 0.0
        if refused:
            request.without |= refused
            return await self._attempt(request, seconds)  # each time with fewer parameters
        if status == 200:
            self._parameters.take(sent, request.without)
        return self._classify(status, headers, content)

    async def _post(self, body: dict[str, Any]) -> tuple[int, Mapping[str, str], bytes | None]:
        """Status, headers and content, which is None beyond the allowed size. An endpoint may
        repeat the key that it was given: here it is masked.
        """
        self.calls += 1
        # Followed, a redirect would take the request to a host that nobody named.
        url = self.endpoint.completions_url if "prompt" in body else self.endpoint.chat_url
        async with self._client.post(
            url, json=body, proxy=self._proxy, allow_redirects=False
        ) as response:
            content = b""
            self._silence.heard()
            async for piece in response.content.iter_any():
                content += piece
                self._silence.heard()
                # Counted as it comes: a header with the length may be missing, or false.
                if len(content) > self.endpoint.max_bytes:
                    return response.status, response.headers, None
            if self._key:
                content = content.replace(self._key.encode(), MASK.encode())
            return response.status, response.headers, content

    async def _ask_models(self) -> None:
        """Ask for the list of models; any answer is one."""
        url = self.endpoint.models_url
        with suppress(aiohttp.ClientError):
            async with self._client.get(url, proxy=self._proxy, allow_redirects=False):
                self._silence.heard()

    def _classify(
        self, status: int, headers: Mapping[str, str], content: bytes | None
    ) -> Attempted:
        """What is kept of a reply, or the reason why it is none, by its status."""
        said = f"status {status}: {_shown(content)}".removesuffix(": ")
        if content is None:
            return Unscored("too_large", f"over {self.endpoint.max_bytes} bytes"), None
        if status == 429 and b"insufficient_quota" in content:
            return Unscored("out_of_quota", said), None
        if status == 429:
            return Unscored("rate_limited", said), retry_after(headers)
        if status == 408 or status >= 500:
            return Unscored("server_error", said), retry_after(headers)
        if status in (401, 403):
            words = f"{said}; set {self.endpoint.key} to a key this endpoint accepts"
            return Unscored("key_refused", words), None
        if 300 <= status < 400:
            return Unscored("redirect", f"status {status}; redirects are not followed"), None
        if status != 200:
            return Unscored(f"http_{status}", _shown(content)), None
        found = _envelope(content, self._key)
        return found, 0.0 if isinstance(found, Unscored) else None


def _client(endpoint: Endpoint, key: str | None) -> aiohttp.ClientSession:
    """An open client. Each attempt has a time limit of its own."""
    return aiohttp.ClientSession(
        headers={"Authorization": f"Bearer {key}"} if key else {},
        # One more than requests, to ask whether it answers at all.
        connector=aiohttp.TCPConnector(limit=endpoint.concurrency + 1, socket_factory=open_socket),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
    )


def _shown(content: bytes | None) -> str:
    """The start of an endpoint's message, on one line."""
    return " ".join((content or b"")[:300].decode(errors="replace").split())[:200]


def _envelope(content: bytes, key: str | None) -> Sent:
    """What is kept of a chat completion: `content` (`<think>` where there are thoughts and no
    answer), `finish_reason`, `tokens` with their log-probabilities, `usage`. Of a completion that
    is no chat, `scored`, its `logprobs`, and `usage`.
    """
    try:
        body = json.loads(content)
        body = _masked(body, key) if key else body
        choice = body["choices"][0]
        if "message" not in choice:
            scored = choice["logprobs"] or {}
            pieces = "".join(map(str, scored.get("tokens") or ()))
            scored = {} if key and key in pieces else scored
            return {"scored": scored, "usage": body.get("usage") or {}}
        message = choice["message"]
        text = message.get("content") or message.get("refusal") or ""
        if text == "" and any(message.get(name) for name in THOUGHTS):
            text = "<think>"
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
        return Unscored("not_json", f"not a chat completion: {_shown(content)!r}")
    if key and key in "".join(str(token) for token, _ in tokens):
        tokens = []  # in pieces no mask finds it
    return {"content": text, "finish_reason": reason, "tokens": tokens, "usage": usage}


def _masked(value: Any, key: str) -> Any:
    """JSON without the key, which may be spelled otherwise in its bytes, `\\u0073` for an s."""
    if isinstance(value, str):
        return value.replace(key, MASK)
    if isinstance(value, list):
        return [_masked(inner, key) for inner in value]
    if isinstance(value, dict):
        return {_masked(name, key): _masked(inner, key) for name, inner in value.items()}
    return value


def _alternatives(token: dict[str, Any]) -> list[dict[str, Any]]:
    """Those of a token, the token itself where none are listed."""
    return token.get("top_logprobs") or [token]
