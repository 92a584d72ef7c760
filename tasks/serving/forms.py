"""The answers to a request in the words of OpenAI's replies, whole or piece by piece."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

from model.generation.ending import Token
from tasks.serving.answers import Answer, Piece, chat_logprobs, completion_logprobs
from tasks.serving.protocol import ChatRequest, CompletionRequest
from tasks.serving.service import Service


class Refused(Exception):
    """A request that is answered by an error: an HTTP status with a message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Form:
    """The answers to one request, in the words of its path."""

    kind = chunk_kind = prefix = ""

    def __init__(self, service: Service, asked: Any, answers: list[Answer]) -> None:
        self.service, self.asked, self.answers = service, asked, answers
        self.id, self.created = f"{self.prefix}-{uuid.uuid4().hex}", int(time.time())
        self.written = 0

    def choice(self, index: int, pieces: Sequence[Piece]) -> dict[str, Any]:
        """A whole answer."""
        raise NotImplementedError

    def delta(self, index: int, piece: Piece, first: bool) -> dict[str, Any]:
        """A piece of one."""
        raise NotImplementedError

    async def whole(self) -> dict[str, Any]:
        """The reply when all answers have come."""
        choices = []
        for index, answer in enumerate(self.answers):
            pieces = [piece async for piece in answer]
            if pieces[-1].reason == "cancelled":
                raise Refused(503, "the answer was broken off; ask again")
            self.written += sum(len(piece.tokens) for piece in pieces)
            choices.append(self.choice(index, pieces))
        return self._head(self.kind) | {"choices": choices, "usage": self.usage()}

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """The reply piece by piece, of all answers as they come."""
        queue: asyncio.Queue[tuple[int, Piece]] = asyncio.Queue()

        async def follow(index: int, answer: Answer) -> None:
            async for piece in answer:
                await queue.put((index, piece))

        tasks = [asyncio.ensure_future(follow(*pair)) for pair in enumerate(self.answers)]
        left, begun = len(tasks), set[int]()
        try:
            while left:
                index, piece = await queue.get()
                left -= piece.reason is not None
                self.written += len(piece.tokens)
                choice = self.delta(index, piece, index not in begun)
                begun.add(index)
                yield self._head(self.chunk_kind) | {"choices": [choice]}
            if self.asked.tells_usage:
                yield self._head(self.chunk_kind) | {"choices": [], "usage": self.usage()}
        finally:
            for task in tasks:
                task.cancel()

    def usage(self) -> dict[str, int]:
        """Tokens read and written."""
        prompts = {id(a.request.prompt): len(a.request.prompt) for a in self.answers}
        read = sum(prompts.values())
        return {
            "prompt_tokens": read,
            "completion_tokens": self.written,
            "total_tokens": read + self.written,
        }

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.service.name,
        }


class Completions(Form):
    """Texts that follow prompts."""

    kind = chunk_kind = "text_completion"
    prefix = "cmpl"

    def __init__(self, service: Service, asked: CompletionRequest) -> None:
        super().__init__(service, asked, service.complete(asked))

    def choice(self, index: int, pieces: Sequence[Piece]) -> dict[str, Any]:
        """A whole answer, behind its prompt where that is asked for."""
        answer = self.answers[index]
        tokens = [token for piece in pieces for token in piece.tokens]
        echoed = self._echo(answer)
        return {
            "index": index,
            "text": echoed + "".join(piece.text for piece in pieces),
            "finish_reason": pieces[-1].reason,
            "logprobs": self._scored(answer, [*answer.prompt, *tokens]),
        }

    def delta(self, index: int, piece: Piece, first: bool) -> dict[str, Any]:
        """A piece of an answer."""
        answer = self.answers[index]
        before = self._echo(answer) if first else ""
        tokens = [*(answer.prompt if first else ()), *piece.tokens]
        return {
            "index": index,
            "text": before + piece.text,
            "finish_reason": piece.reason,
            "logprobs": self._scored(answer, tokens),
        }

    def _scored(self, answer: Answer, tokens: list[Token]) -> dict[str, Any] | None:
        if self.asked.logprobs is None:
            return None
        found = completion_logprobs(answer.encoder, tokens, self.asked.logprobs, answer.told)
        answer.told += len(answer.encoder.decode([token.id for token in tokens]))
        return found

    def _echo(self, answer: Answer) -> str:
        if not self.asked.echo:
            return ""
        place = self.answers.index(answer) // self.asked.n
        prompt = self.asked.prompts[place]
        return prompt if isinstance(prompt, str) else answer.encoder.decode(prompt, specials=True)


class Chats(Form):
    """Turns of a conversation."""

    kind, chunk_kind = "chat.completion", "chat.completion.chunk"
    prefix = "chatcmpl"

    def __init__(self, service: Service, asked: ChatRequest) -> None:
        super().__init__(service, asked, service.chat(asked))

    def choice(self, index: int, pieces: Sequence[Piece]) -> dict[str, Any]:
        """A whole turn."""
        tokens = [token for piece in pieces for token in piece.tokens]
        text = "".join(piece.text for piece in pieces)
        return {
            "index": index,
            "message": {"role": "assistant", "content": text},
            "finish_reason": pieces[-1].reason,
            "logprobs": self._scored(tokens),
        }

    def delta(self, index: int, piece: Piece, first: bool) -> dict[str, Any]:
        """A piece of a turn."""
        role = {"role": "assistant"} if first else {}
        return {
            "index": index,
            "delta": {**role, "content": piece.text},
            "finish_reason": piece.reason,
            "logprobs": self._scored(piece.tokens),
        }

    def _scored(self, tokens: list[Token]) -> dict[str, Any] | None:
        return chat_logprobs(self.service.encoder, tokens) if self.asked.logprobs else None
