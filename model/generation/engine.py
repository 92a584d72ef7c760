"""The engine behind every answer: requests of any lengths, at any time, through one network.

    engine = Engine(network)
    engine.submit(Request(prompt=[5, 8], max_tokens=64, on_token=..., on_end=...))
    while engine.step():
        pass

Continuous batching (Yu et al. 2022, Orca, section 3): a request joins the batch at any step and
leaves it when it ends. A step takes one more token of every row that writes, and of rows that still
read their prompts as many as are left of `chunk` (chunked prefill: Agrawal et al. 2023), so that a
long prompt holds nobody up for more than a step. All go through the network end to end, in one
ragged batch (`model.ragged`). Rows that share the beginning of their prompts read it once
(`model.generation.prefixes`).

What a row is answered does not depend on its company, but for the last bits of its scores: kernels
add up in another order for another number of rows.

Letters: N tokens, R rows, V vocabulary.
"""

import math
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from model.cache import Cache
from model.generation.choosing import choose, scored
from model.generation.ending import Token
from model.generation.prefixes import Prefixes, shared
from model.generation.reader import Network, usable
from model.generation.request import Reason, Request
from model.generation.sampling import uniforms
from model.ragged import RaggedCache
from model.transformer import Transformer


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """What an engine has room for."""

    rows: int = 64
    """That are answered at a time; others wait."""
    waiting: int = 1024
    """That wait; beyond them a request is refused."""
    chunk: int = 256
    """Tokens of prompts that are read in one step."""
    tokens: int = 1 << 17
    """In the key-value caches, of rows and of what is kept for others with the same beginning."""


class Full(Exception):
    """So many requests wait that another is refused."""


@dataclass(eq=False)
class Row:
    """A request that is being answered; `tokens` are its prompt and what was written."""

    request: Request
    cache: Cache
    tokens: list[int]
    uniform_T: Tensor
    written: int = 0
    read: list[Token] = field(default_factory=list)
    """Of the prompt, where its log-probabilities are asked for."""

    @property
    def left(self) -> int:
        """Tokens that it has to read before the next one is chosen."""
        return len(self.tokens) - self.cache.length


class Engine:
    """One network and the rows that it is at work on. `step` is for one thread, `submit` for all.

    Raises `ValueError` for a network that is no decoder.
    """

    def __init__(self, network: Network, capacity: Capacity = Capacity()) -> None:
        if not isinstance(network, Transformer) or network.config.family != "decoder":
            raise ValueError(f"model.family is {network.config.family!r}; only a decoder is served")
        if network.headless:
            raise ValueError("the model was tuned for another task and has no LM head to write by")
        self.network, self.capacity = network.eval(), capacity
        self.device = network.embedding.weight.device
        self.rows: list[Row] = []
        self.prefixes = Prefixes(network.config)
        self.waiting: deque[Request] = deque()
        self._cancelled: set[Request] = set()
        self.changed = threading.Condition()
        self.read = self.written = 0
        """Tokens of prompts, and of answers, so far."""

    def submit(self, request: Request) -> None:
        """Let a request wait for its turn. Raises `Full`, and `ValueError` for a prompt that with
        its answer is longer than the context, or than all caches.
        """
        most = min(self.network.config.context, self.capacity.tokens)
        whole = len(request.prompt) + request.max_tokens
        if not request.prompt or whole > most:
            raise ValueError(
                f"the prompt has {len(request.prompt)} tokens and max_tokens is "
                f"{request.max_tokens}; together they must be from 1 to {most}"
            )
        with self.changed:
            if len(self.waiting) >= self.capacity.waiting:
                raise Full(f"{len(self.waiting)} requests wait already")
            self.waiting.append(request)
            self.changed.notify_all()

    def cancel(self, request: Request) -> None:
        """End a request whose answer nobody waits for, at the next step."""
        with self.changed:
            self._cancelled.add(request)
            self.changed.notify_all()

    @torch.inference_mode()
    def step(self) -> bool:
        """Take every row on by a token, or by a part of its prompt; False when there is no row."""
        self._leave()
        self._admit()
        batch = self._batch()
        if not batch:
            return bool(self.rows)
        rows, counts = zip(*batch, strict=True)
        ragged = RaggedCache([row.cache for row in rows], counts, self.device)
        new = [row.tokens[row.cache.length :][:count] for row, count in batch]
        inputs_1N = torch.tensor([[id_ for ids in new for id_ in ids]], device=self.device)
        hidden_ND = self.network(inputs_1N, None, ragged.positions_1N, ragged)[0]
        self.read += sum(count for row, count in batch if row.written == 0)
        parts = dict(zip(rows, hidden_ND.split(counts), strict=True))
        self._note_prompts(parts)
        self._write([row for row in rows if row.left == 0], parts)
        return True

    def _batch(self) -> list[tuple[Row, int]]:
        """The rows of this step, each with the number of tokens that it reads."""
        room, batch = self.capacity.chunk, []
        for row in self.rows:
            count = min(row.left, room) if row.written == 0 else 1
            if count:
                batch.append((row, count))
                room -= count if row.written == 0 else 0
        return batch

    def _admit(self) -> None:
        """Let those in whose turn it is, each with what it shares with others already read."""
        with self.changed:
            while self.waiting and len(self.rows) < self.capacity.rows:
                request = self.waiting[0]
                need = len(request.prompt) + request.max_tokens
                held = sum(len(r.request.prompt) + r.request.max_tokens for r in self.rows)
                if held + need > self.capacity.tokens:
                    return
                if any(self._is_worth_waiting_for(row, request) for row in self.rows):
                    return
                self.waiting.popleft()
                self.prefixes.trim(self.capacity.tokens - held - need)
                self.rows.append(self._begin(request))

    def _is_worth_waiting_for(self, row: Row, request: Request) -> bool:
        """Whether a row is still reading what the request begins with."""
        common = shared(row.request.prompt, request.prompt)
        return row.cache.length < common and request.on_prompt is None

    def _begin(self, request: Request) -> Row:
        prompt = list(request.prompt)
        cache = None
        if request.on_prompt is None:  # which wants the scores of all of it
            cache = self.prefixes.take(prompt, [(r.tokens, r.cache) for r in self.rows])
        empty = Cache(self.network.config, len(prompt) + request.max_tokens)
        uniform_T = uniforms([request.seed], max(1, request.max_tokens))[0]
        return Row(request, cache or empty, prompt, uniform_T)

    def _note_prompts(self, parts: dict[Row, Tensor]) -> None:
        """Score the tokens of prompts where that is asked for, and tell them when all are read."""
        for row, hidden_TD in parts.items():
            request = row.request
            if request.on_prompt is None or row.written:
                continue
            after = row.cache.length - len(hidden_TD) + 1  # the token that the first state is about
            logits_TV = usable(self.network, self.network.logits(hidden_TD))
            row.read += scored(
                logits_TV, row.tokens[after : row.cache.length + 1], request.likeliest
            )
            if row.left == 0:
                request.on_prompt([Token(row.tokens[0], math.nan), *row.read])

    def _write(self, rows: list[Row], parts: dict[Row, Tensor]) -> None:
        """Choose the next token of each row, and tell it."""
        going = [row for row in rows if row.request.max_tokens]
        for row in rows:
            if not row.request.max_tokens:
                self._end(row, "length")
        if not going:
            return
        last_RD = torch.stack([parts[row][-1] for row in going])
        logits_RV = usable(self.network, self.network.logits(last_RD))
        chosen = choose(logits_RV, [self._turn(row) for row in going])
        for row, token in zip(going, chosen, strict=True):
            row.written += 1
            self.written += 1
            row.tokens.append(token.id)
            if reason := self._told(row, token):
                self._end(row, reason)

    def _turn(self, row: Row) -> tuple[Request, list[int], float]:
        return row.request, row.tokens, float(row.uniform_T[row.written])

    def _told(self, row: Row, token: Token) -> Reason | None:
        """Tell a token; why it was the last, if it was."""
        request = row.request
        if token.id in request.stop_ids:
            return "stop"
        complete = request.constraint is not None and request.constraint.accept(token.id)
        if request.on_token(token) or complete:
            return "stop"
        return "length" if row.written == request.max_tokens else None

    def _end(self, row: Row, reason: Reason) -> None:
        self.rows.remove(row)
        self.prefixes.keep(row.tokens[: row.cache.length], row.cache)
        row.request.on_end(reason)

    def abandon(self) -> None:
        """End all rows, after a step that failed: what their caches hold is not known."""
        rows, self.rows = self.rows, []
        self.prefixes.kept.clear()
        for row in rows:
            row.request.on_end("cancelled")

    def _leave(self) -> None:
        """Let those go that were cancelled."""
        with self.changed:
            cancelled, self._cancelled = self._cancelled, set()
            for request in cancelled & set(self.waiting):
                self.waiting.remove(request)
                request.on_end("cancelled")
        for row in [row for row in self.rows if row.request in cancelled]:
            self._end(row, "cancelled")


def complete(engine: Engine, requests: Iterable[Request]) -> None:
    """Answer all requests in this thread, taking up new ones as there is room."""
    for request in requests:
        while len(engine.waiting) >= engine.capacity.rows:
            engine.step()
        engine.submit(request)
    while engine.step() or engine.waiting:
        pass
