"""The engine of stage `infer`: rows put to the engine of continuous batches, and kept as they come.

Every answer is kept as soon as it is whole, by the number of its row (`ReplyStore`, as a judge's
paid replies are): whatever is killed, no finished row is asked again. In this process all rows go
through one engine. Where there is a cluster, or more workers are asked for, blocks of rows are Ray
tasks (`cluster.fan_out`), and finished ones lie in the stage's scratch folder, as blocks of text do
(`tasks.data.blocks`). Not Ray Data: its checkpoint is written with each block of the output and has
no smaller part, so that a kill loses up to a block of answers for each worker, it wants a disk that
all nodes share, and its rows come back in any order.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import torch

from cluster.errors import BadInput
from cluster.fan_out import fan_out, several_nodes
from cluster.files import write_atomically
from cluster.handover import all_here, finished
from cluster.placement import Placement
from cluster.store import Draft
from model.generation.ending import Token
from model.generation.engine import Capacity, Engine, complete
from model.generation.request import Reason, Request
from tasks.data.blocks import make_block
from tasks.evaluation.judging.reply_store import ReplyStore
from tasks.inference.generation import Precision, load_model
from tasks.inference.text_stream import before_stop, first_stop
from tasks.serving import protocol
from tasks.serving.asking import Asker
from tasks.serving.batch.rows import Asked, Row
from tasks.serving.batch.settings import MOST_TOKENS, InferSettings
from tasks.tokens.encoder import Encoder

BLOCK = 256
"""Rows of a block: some batches, so that few places stand empty while the last rows end."""
CACHE_TOKENS = 1 << 17
REPLIES = "replies.json"
Reply = dict[str, Any]
"""`text`, `ended` (stop or length) and `tokens`; or `refused`, the reason, and `detail`."""


@dataclass(frozen=True)
class Job:
    """What each process is to know: the model's folder, how to answer, where replies are kept."""

    model: Path
    settings: InferSettings
    seed: int
    replies: Path
    device: str


@dataclass
class Answered:
    """Replies by row, and how many of them were asked for now."""

    replies: dict[int, Reply]
    asked: int = 0


def answer_rows(
    model: Path, rows: Sequence[Row], settings: InferSettings, seed: int, draft: Draft
) -> Answered:
    """The replies to all rows by the model of a folder; those that an earlier attempt left are not
    asked for again. Raises BadInput for a model that the engine cannot run, and for conversations
    that it has no template for.
    """
    replies = draft.scratch / "replies"
    replies.mkdir(exist_ok=True)
    at_once = _at_once(draft.placement)
    if at_once != 1 and len(rows) > BLOCK:
        job = Job(model, settings, seed, replies, "cuda" if draft.placement.gpus else "cpu")
        return _in_blocks(job, rows, draft, at_once)
    job = Job(model, settings, seed, replies, "cuda" if torch.cuda.is_available() else "cpu")
    progress = partial(draft.progress, total=len(rows), unit="rows")
    loaded = _load(model, job.device, settings.concurrency, settings.precision)
    return Answerer(job, *loaded).answered(rows, "0.sqlite", progress)


def _at_once(placement: Placement) -> int | None:
    """Processes side by side: those asked for, else one, or with several nodes all there is room
    for.
    """
    return placement.data_workers or (None if several_nodes() else 1)


def _in_blocks(job: Job, rows: Sequence[Row], draft: Draft, at_once: int | None) -> Answered:
    """All rows as Ray tasks, a block each, `at_once` side by side."""
    folder = draft.scratch / "blocks"
    folder.mkdir(exist_ok=True)
    blocks = list(enumerate(rows[n : n + BLOCK] for n in range(0, len(rows), BLOCK)))
    kept = [finished(folder / f"{number:05d}") for number, _ in blocks]
    work = partial(make_block, folder, partial(_write_block, job))
    whole = Answered({})
    paths = fan_out(work, blocks, at_once, draft.placement.gpus)
    for path, was_there in zip(paths, kept, strict=True):
        found = json.loads((all_here(path) / REPLIES).read_text())
        whole.replies |= {int(number): reply for number, reply in found["replies"].items()}
        whole.asked += 0 if was_there else found["asked"]
        draft.progress(len(whole.replies), len(rows), "rows")
    return whole


def _write_block(job: Job, number: int, rows: Sequence[Row], folder: Path) -> None:
    settings = job.settings
    loaded = _loaded(job.model, job.device, settings.concurrency, settings.precision)
    try:
        found = Answerer(job, *loaded).answered(rows, f"{number:05d}.sqlite", lambda done: None)
    except BaseException:
        _loaded.cache_clear()  # rows are left in its engine
        raise
    write_atomically(folder / REPLIES, json.dumps(vars(found)))


def _load(
    model: Path, device: str, concurrency: int, precision: Precision
) -> tuple[Encoder, Engine]:
    network, encoder = load_model(model, precision)
    tokens = max(CACHE_TOKENS, network.config.context)
    try:
        return encoder, Engine(network.to(device), Capacity(rows=concurrency, tokens=tokens))
    except ValueError as error:
        raise BadInput(f"{model}: {error}") from error


_loaded = lru_cache(maxsize=1)(_load)
"""That of a worker, which answers several blocks."""


@dataclass(frozen=True)
class Answerer:
    """A model at work on rows."""

    job: Job
    encoder: Encoder
    engine: Engine

    @property
    def settings(self) -> InferSettings:
        """How to answer."""
        return self.job.settings

    @cached_property
    def asked(self) -> protocol.Asked:
        """How an answer is drawn, in the words of the server."""
        settings = self.settings
        return protocol.Asked(
            temperature=settings.temperature,
            top_k=settings.top_k,
            top_p=settings.top_p,
            min_p=settings.min_p,
            repetition_penalty=settings.repetition_penalty,
            presence_penalty=settings.presence_penalty,
            frequency_penalty=settings.frequency_penalty,
            response_format=settings.response_format,
        )

    @property
    def asker(self) -> Asker:
        """What a row asks of the engine."""
        return Asker(self.encoder, self.engine.network.config)

    def answered(
        self, rows: Sequence[Row], name: str, progress: Callable[[int], object]
    ) -> Answered:
        """The replies to some rows, kept in the store of this name; `progress` is told how many
        there are.
        Raises BadInput for conversations that the model has no template for.
        """
        numbers = {row.number for row in rows}
        found = Answered({n: r for n, r in kept_replies(self.job.replies) if n in numbers})
        store = ReplyStore(self.job.replies / name)

        def keep(number: int, reply: Reply) -> None:
            store.answer(str(number), reply)
            found.replies[number] = reply
            progress(len(found.replies))

        progress(len(found.replies))
        todo = [row for row in rows if row.number not in found.replies]
        try:
            complete(self.engine, self._requests(todo, store, keep))
        finally:
            store.close()
        found.asked = len(todo)
        return found

    def _requests(
        self, rows: Sequence[Row], store: ReplyStore, keep: Callable[[int, Reply], None]
    ) -> Iterator[Request]:
        for row in rows:
            store.ask(str(row.number))
            prompt = self._prompt(row.asked)
            if isinstance(prompt, dict):
                keep(row.number, prompt)
            else:
                yield self._request(row.number, prompt, keep)

    def _prompt(self, asked: Asked) -> list[int] | Reply:
        """The ids of what a row asks, or why it is refused."""
        said = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
        if isinstance(asked, str) and not self.settings.chat:
            try:
                ids = self.asker.text(asked)
            except BadInput as error:  # half a surrogate pair, which JSON can hold
                return {"refused": "lone_surrogate", "detail": str(error)}
        else:
            if self.encoder.roles.template is None:
                raise BadInput(
                    f"{self.job.model} has no chat template, and rows hold conversations: tune it "
                    "with `instruct`, or name a field of plain text"
                )
            try:
                ids = self.asker.chat(protocol.ChatRequest(messages=said).messages)
            except ValueError as error:
                return {"refused": "bad_messages", "detail": " ".join(str(error).split())[:200]}
        least = self.settings.max_tokens or 1
        if self.asker.room(ids) < least:
            context = self.asker.config.context
            more = f"and {least} of the answer are more than the context of {context}"
            return {"refused": "too_long", "detail": f"{len(ids)} tokens {more}"}
        return ids

    def _request(
        self, number: int, prompt: list[int], keep: Callable[[int, Reply], None]
    ) -> Request:
        ids: list[int] = []
        stops, decode = self.settings.stop, self.encoder.decode

        def on_token(token: Token) -> bool:
            ids.append(token.id)
            return bool(stops) and first_stop(decode(ids), stops) is not None

        def on_end(reason: Reason) -> None:
            text = before_stop(decode(ids), stops)
            keep(number, {"text": text, "ended": reason, "tokens": len(ids)})

        most = self.settings.max_tokens or min(MOST_TOKENS, self.asker.room(prompt))
        seed = self.job.seed + number
        return self.asker.request(self.asked, prompt, most, seed, 0, on_token, on_end, None)


def kept_replies(folder: Path) -> Iterator[tuple[int, Reply]]:
    """What the processes of this and earlier attempts have kept, by row."""
    for path in sorted(folder.glob("*.sqlite")):
        store = ReplyStore(path)
        try:
            yield from ((int(key), reply) for key, reply in store.arrived())
        finally:
            store.close()
