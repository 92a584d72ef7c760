"""A model at work for many: the engine in a thread of its own, and what it is asked.

service = Service(folder, "my-model", Capacity(), facts={})
service.start()
answers = service.complete(CompletionRequest(prompt="Once"))     # in an event loop
"""

import base64
import itertools
import logging
import secrets
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cluster.errors import BadInput
from model.flops import parameter_count
from model.generation.engine import Capacity, Engine
from tasks.evaluation.embedding.contextual import embed_texts
from tasks.inference.generation import Precision, load_model
from tasks.inference.text_stream import TextStream
from tasks.serving.answers import Answer
from tasks.serving.asking import Asker
from tasks.serving.protocol import (
    Asked,
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    EmbeddingRequest,
    TokenizeRequest,
)

EMBEDDED_LAYERS = 4
log = logging.getLogger("headrace.serve")


class Service:
    """One model, its tokenizer and its engine. Raises BadInput for a folder that cannot be served.

    `name` is what clients call it, `facts` is what they are told of it.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        capacity: Capacity,
        facts: Mapping[str, str],
        precision: Precision = "fp32",
    ) -> None:
        network, self.encoder = load_model(folder, precision)
        self.folder, self.name, self.started = folder, name, time.time()
        self.config, self.facts = network.config, facts
        self.asker = Asker(self.encoder, self.config)
        try:
            self.network, self.engine = network, Engine(network, capacity)
        except ValueError as error:
            raise BadInput(f"{folder}: {error}") from error
        self.ended = Counter[tuple[str, int]]()
        """Requests that were answered, by endpoint and HTTP status."""
        self._closed = False
        self._turn = threading.Lock()
        """Held by whoever uses the network: a step of the engine, or an embedding."""
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
        prompts = [self.asker.text(prompt) for prompt in asked.prompts]
        if not prompts:
            raise BadInput("prompt is empty; it takes one text or more")
        return self._submitted(asked, prompts, asked.max_tokens, asked.likeliest, echoes=asked.echo)

    def chat(self, asked: ChatRequest) -> list[Answer]:
        """The answers to a conversation. Raises as `complete` does."""
        prompt = self.asker.chat(asked.messages)
        most = asked.most or max(1, self.asker.room(prompt))
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

    def tokenize(self, asked: TokenizeRequest) -> dict[str, Any]:
        """The tokens of a text, in which marks count as such."""
        opening = self.encoder.opening if asked.add_special_tokens else []
        ids = [*opening, *(id_ for id_, _, _ in self.encoder.encode_marked(asked.prompt, []))]
        return {"tokens": ids, "count": len(ids), "max_model_len": self.config.context}

    def detokenize(self, asked: DetokenizeRequest) -> str:
        """The text of some tokens, marks included. Raises BadInput for an id that no token has."""
        return self.encoder.decode(self.asker.text(asked.tokens), specials=True)

    def marks(self) -> dict[str, Any]:
        """The tokenizer's marks by transformers' names, and its chat template."""
        roles = self.encoder.roles
        marks = {"bos_token": roles.begin, "eos_token": roles.end, "pad_token": roles.pad}
        return marks | {"chat_template": roles.template}

    def _submitted(
        self,
        asked: Asked,
        prompts: Sequence[list[int]],
        most: int,
        likeliest: int | None,
        *,
        echoes: bool = False,
    ) -> list[Answer]:
        """`n` answers to each prompt, each by a seed of its own, given to the engine; with `echoes`
        and log-probabilities also those of the prompt's tokens.
        """
        seed = secrets.randbits(62) if asked.seed is None else asked.seed
        answers = []
        for prompt, number in itertools.product(prompts, range(asked.n)):
            answer = Answer(self.encoder, TextStream(self.encoder.decode, asked.stops))
            answer.request = self.asker.request(
                asked,
                prompt,
                most,
                seed + number,
                likeliest or 0,
                answer.on_token,
                answer.on_end,
                answer.prompt.extend if echoes and likeliest is not None else None,
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

    def count(self, endpoint: str, status: int) -> None:
        """Note a request that was answered."""
        self.ended[endpoint, status] += 1

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
