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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import torch
from torch import Tensor

from model.generation.choosing import choose
from model.generation.drafts import COUNT, ROWS, Drafts
from model.generation.ending import Token
from model.generation.packed import packed
from model.generation.prefixes import LEAST, Prefixes, shared
from model.generation.reader import Network, usable
from model.generation.request import Reason, Request
from model.generation.sampling import uniforms
from model.generation.stream import tokens_of
from model.ragged import Slots
from model.transformer import Transformer


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """What an engine has room for."""

    rows: int = 64
    """Requests that are answered at a time; others wait."""
    waiting: int = 1024
    """Requests that wait at most; the next is refused."""
    chunk: int = 256
    """Tokens of prompts that are read in one step."""
    tokens: int = 1 << 17
    """Positions in all caches, of rows and of what is kept for others with the same beginning."""
    packing: bool = True
    """Whether matrices on a CPU are kept a second time, laid out for a few rows, and in fp16 to
    guess with (`model.generation.drafts`): that takes one and a half times their memory more.
    """


class Full(Exception):
    """So many requests wait that another is refused."""


@dataclass(eq=False)
class Row:
    """A request that is being answered; `tokens` are its prompt and what was written."""

    request: Request
    slots: Slots
    slot: int
    tokens: list[int]
    uniform_T: Sequence[float]
    """A number in [0, 1) for each token to come, to draw it by; empty where none is drawn."""
    written: int = 0
    scored: list[Token] = field(default_factory=list)
    """Tokens of the prompt, where their log-probabilities are asked for."""

    @property
    def need(self) -> int:
        """Positions that its slot has to have."""
        return _need(self.request)

    @property
    def length(self) -> int:
        """Tokens that it has read."""
        return self.slots.lengths[self.slot]

    @length.setter
    def length(self, count: int) -> None:
        self.slots.lengths[self.slot] = count

    @property
    def left(self) -> int:
        """Tokens that it has to read before the next one is chosen."""
        whole = len(self.tokens)
        # What no token follows is scored and need not be read.
        return (whole if self.request.max_tokens else max(1, whole - 1)) - self.length


class Engine:
    """One network and the rows that it is at work on. `step` is for one thread, `submit` for all.

    Raises `ValueError` for a network that is no decoder.
    """

    def __init__(self, network: Network, capacity: Capacity = Capacity()) -> None:
        if not isinstance(network, Transformer) or network.config.family != "decoder":
            raise ValueError(f"model.family is {network.config.family!r}; only a decoder is served")
        if network.headless:
            raise ValueError("the model was tuned for another task and has no LM head to write by")
        network = network.eval()
        self.network = packed(network) if capacity.packing else network
        self.capacity = capacity
        self.device = network.embedding.weight.device
        scaling = network.config.rope_scaling
        # How its positions turn depends on a prompt's length: parts of one would turn otherwise.
        self.whole = scaling is not None and scaling.kind == "longrope"
        self.drafts = Drafts(network, capacity.packing and not self.whole)
        self.rows: list[Row] = []
        self.prefixes = Prefixes(network.config, capacity.rows, capacity.tokens)
        self.slots = self.prefixes.slots
        self.waiting: deque[Request] = deque()
        self._cancelled: set[Request] = set()
        self.changed = threading.Condition()
        self.read = self.written = 0
        """Tokens of prompts, and of answers, so far."""

    def submit(self, request: Request) -> None:
        """Let a request wait for its turn. Raises `Full`, and `ValueError` for a prompt that with
        its answer is longer than the context, or than all caches.
        """
        # What no token follows is scored and need not be read.
        scored = int(request.max_tokens == 0)
        most = min(self.network.config.context, self.capacity.tokens) + scored
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
        guesses = self._guesses(batch)
        new = [[*row.tokens[row.length :][:count], *guesses.get(row, ())] for row, count in batch]
        hidden_ND = self._read(self.network, [row for row, _ in batch], new)
        self.read += sum(count for row, count in batch if row.written == 0)
        ends = list(accumulate(map(len, new)))
        self._note_prompts(batch, ends, hidden_ND)
        lasts = {row: end - 1 for (row, _), end in zip(batch, ends, strict=True) if row.left <= 0}
        self._write(lasts, guesses, hidden_ND)
        return True

    def _read(self, network: Network, rows: Sequence[Row], new: Sequence[Sequence[int]]) -> Tensor:
        """The states `[N, D]` of rows' new tokens, end to end; their slots have read these then."""
        counts = [(row.slot, len(ids)) for row, ids in zip(rows, new, strict=True)]
        ragged = self.slots.batch(counts, self.device)
        inputs_1N = torch.tensor([[id_ for ids in new for id_ in ids]], device=self.device)
        hidden_ND = network(inputs_1N, None, ragged.positions_1N, ragged)[0]
        ragged.done()
        return hidden_ND

    def _guesses(self, batch: Sequence[tuple[Row, int]]) -> dict[Row, list[int]]:
        """What rows may write next; nothing where that would save no time."""
        rows = [row for row, _ in batch if row.written and row.request.constraint is None]
        count = min((row.request.max_tokens - row.written - 1 for row in rows), default=0)
        if not count or len(rows) < len(batch) or len(rows) > ROWS:
            return {}
        quick = self.drafts.begin()
        if quick is None:
            return {}
        guesses: dict[Row, list[int]] = {row: [] for row in rows}
        for _ in range(min(count, COUNT)):
            hidden_RD = self._read(quick, rows, [[(row.tokens + guesses[row])[-1]] for row in rows])
            turns = [self._turn(row, guesses[row]) for row in rows]
            chosen = choose(usable(quick, quick.logits(hidden_RD)), turns)
            for row, token in zip(rows, chosen, strict=True):
                guesses[row].append(token.id)
        for row in rows:
            row.length = len(row.tokens) - 1
        return guesses

    def _batch(self) -> list[tuple[Row, int]]:
        """The rows of this step, each with the number of tokens that it reads."""
        room, batch = self.capacity.chunk, []
        for row in self.rows:
            reads = row.left if self.whole else min(row.left, room)
            count = reads if row.written == 0 else 1
            if count:
                batch.append((row, count))
                room -= count if row.written == 0 else 0
        return sorted(batch, key=lambda pair: pair[0].slot)

    def _admit(self) -> None:
        """Let those in whose turn it is, each with what it shares with others already read."""
        with self.changed:
            while self.waiting and len(self.rows) < self.capacity.rows:
                request = self.waiting[0]
                if any(self._is_worth_waiting_for(row, request) for row in self.rows):
                    return
                need = _need(request)
                others = {row.slot: (row.tokens, row.need) for row in self.rows}
                slot = self.prefixes.take(
                    request.prompt, need, others, most=self._shareable(request)
                )
                if slot is None:
                    return
                self.waiting.popleft()
                self.rows.append(self._begin(request, slot))

    def _is_worth_waiting_for(self, row: Row, request: Request) -> bool:
        """Whether a row is still reading what the request begins with."""
        common = min(shared(row.request.prompt, request.prompt), self._shareable(request))
        return row.length < common and common >= LEAST

    def _shareable(self, request: Request) -> int:
        """So many of its prompt's tokens need not be read anew: what is behind is to be scored."""
        last = 0 if self.whole else len(request.prompt) - 1
        return last if request.on_prompt is None else min(last, max(0, request.scored_from - 1))

    def _begin(self, request: Request, slot: int) -> Row:
        drawn = not request.sampling.greedy and request.max_tokens
        uniform_T = uniforms([request.seed], request.max_tokens)[0].tolist() if drawn else ()
        return Row(request, self.slots, slot, list(request.prompt), uniform_T)

    def _note_prompts(
        self, batch: Sequence[tuple[Row, int]], ends: Sequence[int], hidden_ND: Tensor
    ) -> None:
        """Score the tokens of prompts where that is asked for, and tell them when all are read."""
        asked = [
            (row, count, end)
            for (row, count), end in zip(batch, ends, strict=True)
            if row.request.on_prompt is not None and row.written == 0
        ]
        places: list[int] = []
        scored: list[tuple[Row, list[int]]] = []
        for row, count, end in asked:
            first = max(row.length - count + 1, row.request.scored_from)
            ids = row.tokens[first : row.length + 1]
            scored.append((row, ids))
            # A state is about the token behind its own.
            begin = end - row.length + first - 1
            places.extend(range(begin, begin + len(ids)))
        if places:
            self._score(scored, hidden_ND[places])
        for row, _, _ in asked:
            if row.left == 0 and row.request.on_prompt is not None:
                first = [] if row.request.scored_from else [Token(row.tokens[0], math.nan)]
                row.request.on_prompt([*first, *row.scored])

    def _score(self, rows: Sequence[tuple[Row, list[int]]], hidden_ND: Tensor) -> None:
        """Note the log-probabilities of given tokens, by the states before them."""
        logits_NV = usable(self.network, self.network.logits(hidden_ND))
        given_N = torch.tensor([id_ for _, ids in rows for id_ in ids], device=self.device)
        tokens = iter(tokens_of(logits_NV, given_N, max(row.request.likeliest for row, _ in rows)))
        for row, ids in rows:
            most = row.request.likeliest
            found = [next(tokens) for _ in ids]
            row.scored += [token._replace(likeliest=token.likeliest[:most]) for token in found]

    def _write(
        self, lasts: Mapping[Row, int], guesses: Mapping[Row, Sequence[int]], hidden_ND: Tensor
    ) -> None:
        """Choose the next tokens of each row, behind its last and behind each guess, and tell them
        as far as the guesses are right.
        """
        for row in lasts:
            if not row.request.max_tokens:
                self._end(row, "length")
        guessed = {row: guesses.get(row, ()) for row in lasts if row.request.max_tokens}
        if not guessed:
            return
        places = [
            lasts[row] - back for row, ids in guessed.items() for back in range(len(ids), -1, -1)
        ]
        turns = [
            self._turn(row, ids[:n]) for row, ids in guessed.items() for n in range(len(ids) + 1)
        ]
        logits_NV = self.network.logits(hidden_ND[places])
        chosen = iter(choose(usable(self.network, logits_NV), turns))
        for row, ids in guessed.items():
            self._take(row, [next(chosen) for _ in range(len(ids) + 1)], ids)

    def _take(self, row: Row, tokens: Sequence[Token], guesses: Sequence[int]) -> None:
        """Tell a row's tokens, up to the first that was not guessed or the last of the answer."""
        for token, guess in zip(tokens, (*guesses, None), strict=True):
            row.written += 1
            self.written += 1
            row.tokens.append(token.id)
            row.length = len(row.tokens) - 1
            if reason := self._told(row, token):
                return self._end(row, reason)
            if token.id != guess:
                return None
        return None

    def _turn(self, row: Row, guesses: Sequence[int] = ()) -> tuple[Request, list[int], float]:
        """What its next token is chosen by, after some that are guessed."""
        written = row.written + len(guesses)
        uniform = row.uniform_T[written] if row.uniform_T else 0.0
        return row.request, [*row.tokens, *guesses], uniform

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
        self.prefixes.keep(row.slot, row.tokens[: row.length])
        row.request.on_end(reason)

    def abandon(self) -> None:
        """End all rows, after a step that failed: what their caches hold is not known."""
        rows, self.rows = self.rows, []
        self.prefixes.forget()
        for row in rows:
            row.request.on_end("cancelled")

    def _leave(self) -> None:
        """Let those go that were cancelled."""
        with self.changed:
            cancelled, self._cancelled = self._cancelled, set()
            if not cancelled:
                return
            for request in cancelled & set(self.waiting):
                self.waiting.remove(request)
                request.on_end("cancelled")
        for row in [row for row in self.rows if row.request in cancelled]:
            self._end(row, "cancelled")


def _need(request: Request) -> int:
    """Positions that it takes in the caches."""
    return max(1, len(request.prompt) + (request.max_tokens or -1))


def complete(engine: Engine, requests: Iterable[Request]) -> None:
    """Answer all requests in this thread, taking up new ones as there is room."""
    for request in requests:
        while len(engine.waiting) >= engine.capacity.rows:
            engine.step()
        engine.submit(request)
    while engine.step() or engine.waiting:
        pass
