"""A model at work for many: the engine in a thread of its own, and what it is asked.

service = Service(folder, capacity)
service.start()
answers = service.complete(CompletionRequest(prompt="Once"), loop)
"""

import base64
import itertools
import logging
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cluster.errors import BadInput
from model.flops import parameter_count
from model.generation.engine import Capacity, Engine
from model.generation.request import Request
from tasks.evaluation.embedding.contextual import embed_texts
from tasks.inference.generation import load_model
from tasks.inference.text_stream import TextStream
from tasks.serving.answers import Answer
from tasks.serving.constrained import Grammar, grammar_of
from tasks.serving.protocol import Asked, ChatRequest, CompletionRequest, EmbeddingRequest
from tasks.tokens.chat import prompt_ids

EMBEDDED_LAYERS = 4
log = logging.getLogger("headrace.serve")


class Service:
    """One model, its tokenizer and its engine. Raises BadInput for a folder that cannot be served.

    `name` is what clients call it, `facts` is what they are told of it.
    """

    def __init__(
        self, folder: Path, name: str, capacity: Capacity, facts: Mapping[str, str]
    ) -> None:
        network, self.encoder = load_model(folder)
        self.folder, self.name, self.started = folder, name, time.time()
        self.config, self.facts = network.config, facts
        try:
            self.network, self.engine = network, Engine(network, capacity)
        except ValueError as error:
            raise BadInput(f"{folder}: {error}") from error
        self.ended: dict[str, int] = {}
        self._closed = False
        self._turn = threading.Lock()
        """Of whom uses the network."""
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        """Let the engine run."""
        self._thread.start()

    @property
    def healthy(self) -> bool:
        """Whether the engine runs."""
        return self._thread.is_alive()

    def refuse(self) -> None:
        """Take no more."""
        self._closed = True

    def close(self, seconds: float) -> None:
        """Take no more, and give what is being answered so long to end."""
        self.refuse()
        deadline = time.monotonic() + seconds
        while self.busy and time.monotonic() < deadline:
            time.sleep(0.05)
        with self.engine.changed:
            self.engine.changed.notify_all()

    @property
    def closed(self) -> bool:
        """Whether no more is taken."""
        return self._closed

    @property
    def busy(self) -> int:
        """Requests that are being answered, or wait."""
        return len(self.engine.rows) + len(self.engine.waiting)

    def _run(self) -> None:
        """Step until closed; a step that fails ends the rows in it, and no others."""
        while not (self._closed and not self.busy):
            try:
                with self._turn:
                    worked = self.engine.step()
            except Exception:
                log.exception("a step of the engine failed; its %d answers end", self.busy)
                self.engine.abandon()
                continue
            if not worked:
                with self.engine.changed:
                    self.engine.changed.wait_for(lambda: self.engine.waiting or self._closed, 1.0)

    def complete(self, asked: CompletionRequest) -> list[Answer]:
        """The answers to a completion, `n` to each prompt in turn. Raises BadInput for what this
        model cannot do, and `Full`.
        """
        prompts = [self._ids(prompt) for prompt in asked.prompts]
        if not prompts:
            raise BadInput("prompt is empty; it takes one text or more")
        return self._submitted(asked, prompts, asked.max_tokens, asked.likeliest, echoes=asked.echo)

    def chat(self, asked: ChatRequest) -> list[Answer]:
        """The answers to a conversation. Raises as `complete` does."""
        prompt = prompt_ids(self.encoder, asked.messages)
        most = asked.most or max(1, self.config.context - len(prompt))
        return self._submitted(asked, [prompt], most, asked.likeliest)

    def embed(self, asked: EmbeddingRequest) -> dict[str, Any]:
        """The embedding of each text: the mean of its tokens' states in the last four layers."""
        layers = min(EMBEDDED_LAYERS, self.config.depth)
        with self._turn:
            vectors, tokens = embed_texts(self.network, self.encoder, asked.texts, layers)
        data = [
            {"object": "embedding", "index": index, "embedding": _written(asked, vector)}
            for index, vector in enumerate(vectors)
        ]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "data": data, "model": self.name, "usage": usage}

    def _ids(self, prompt: str | list[int]) -> list[int]:
        if isinstance(prompt, str):
            return [*self.encoder.opening, *self.encoder.encode(prompt)] or [self.encoder.eod]
        if wrong := [id_ for id_ in prompt if not 0 <= id_ < self.encoder.ids]:
            raise BadInput(f"prompt: {wrong[0]} is no token; ids are 0 to {self.encoder.ids - 1}")
        return prompt

    def _submitted(
        self,
        asked: Asked,
        prompts: Sequence[list[int]],
        most: int,
        likeliest: int | None,
        *,
        echoes: bool = False,
    ) -> list[Answer]:
        seed = secrets.randbits(62) if asked.seed is None else asked.seed
        grammar = grammar_of(asked.response_format) if asked.response_format else None
        bias = self._bias(asked)
        answers = []
        for prompt, number in itertools.product(prompts, range(asked.n)):
            self._check_length(prompt, most)
            answer = Answer(self.encoder, TextStream(self.encoder.decode, asked.stops))
            answer.request = Request(
                prompt=prompt,
                max_tokens=most,
                stop_ids=self.encoder.ends,
                sampling=asked.sampling,
                seed=(seed + number) % 2**63,
                likeliest=likeliest or 0,
                bias=bias,
                penalties=asked.penalties,
                constraint=self._grammar(grammar),
                on_token=answer.on_token,
                on_prompt=answer.prompt.extend if echoes and likeliest is not None else None,
                on_end=answer.on_end,
            )
            answers.append(answer)
        self._submit(answers)
        return answers

    def _submit(self, answers: list[Answer]) -> None:
        """All of them or none."""
        done: list[Answer] = []
        try:
            for answer in answers:
                self.engine.submit(answer.request)
                done.append(answer)
        except BaseException:
            self.cancel(done)
            raise

    def cancel(self, answers: Sequence[Answer]) -> None:
        """End answers that nobody waits for."""
        for answer in answers:
            self.engine.cancel(answer.request)

    def _grammar(self, grammar: str | None) -> Grammar | None:
        return Grammar(self.encoder, self.config.vocab_size, grammar) if grammar else None

    def _bias(self, asked: Asked) -> dict[int, float]:
        found = asked.logit_bias or {}
        wrong = [id_ for id_ in found if not (id_.isdigit() and int(id_) < self.encoder.ids)]
        if wrong:
            raise BadInput(
                f"logit_bias: {wrong[0]} is no token; ids are 0 to {self.encoder.ids - 1}"
            )
        return {int(id_): value for id_, value in found.items()}

    def _check_length(self, prompt: Sequence[int], most: int) -> None:
        context = self.config.context
        if len(prompt) + most > context:
            raise BadInput(
                f"the prompt has {len(prompt)} tokens and max_tokens is {most}; together they must "
                f"be at most the context of {context}"
            )

    def count(self, endpoint: str, status: int) -> None:
        """Note a request that was answered."""
        key = f'{endpoint}",status="{status}'
        self.ended[key] = self.ended.get(key, 0) + 1

    def about(self) -> dict[str, Any]:
        """The model, as `/v1/models` tells of it."""
        return {
            "id": self.name,
            "object": "model",
            "created": int(self.started),
            "owned_by": "headrace",
            "max_model_len": self.config.context,
        }

    def described(self) -> dict[str, Any]:
        """The model, as the page tells of it."""
        params = f"{parameter_count(self.config):,}"
        facts = {"parameters": params, "context": f"{self.config.context:,} tokens", **self.facts}
        return {"model": self.name, "chat": self.encoder.roles.template is not None, "facts": facts}


def _written(asked: EmbeddingRequest, vector: np.ndarray) -> Any:
    if asked.encoding_format == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return vector.tolist()
