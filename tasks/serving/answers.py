"""An answer on its way: tokens come from the engine's thread, pieces of text go to the client."""

import asyncio
import codecs
import itertools
import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from model.generation.ending import Token
from model.generation.request import Reason, Request
from tasks.inference.text_stream import TextStream
from tasks.tokens.encoder import Encoder


class Piece(NamedTuple):
    """Text that is certain now, the tokens that came for it and, of the last, why it is that."""

    text: str
    tokens: list[Token]
    reason: Reason | None = None


@dataclass
class Answer:
    """One of the answers to a request; made in the event loop, told to by the engine."""

    encoder: Encoder
    stream: TextStream
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    pieces: asyncio.Queue[Piece] = field(default_factory=asyncio.Queue)
    prompt: list[Token] = field(default_factory=list)
    told: int = 0
    """Characters of the tokens whose log-probabilities were told."""
    request: Request = field(init=False)
    _held: list[Token] = field(default_factory=list)

    def on_token(self, token: Token) -> bool:
        """Take a token; whether it completed a stop text. In the engine's thread."""
        self._held.append(token)
        if text := self.stream.push(token.id):
            self._give(Piece(text, self._take()))
        return self.stream.stopped

    def on_end(self, reason: Reason) -> None:
        """Give what was held back, and why it ended."""
        text = "" if self.stream.stopped else self.stream.finish()
        self._give(Piece(text, self._take(), reason))

    def _take(self) -> list[Token]:
        held, self._held = self._held, []
        return held

    def _give(self, piece: Piece) -> None:
        self.loop.call_soon_threadsafe(self.pieces.put_nowait, piece)

    async def __aiter__(self) -> AsyncIterator[Piece]:
        """The pieces as they come."""
        while True:
            piece = await self.pieces.get()
            yield piece
            if piece.reason is not None:
                return


def spelt(encoder: Encoder, id_: int) -> str:
    """A token alone, as text; one that is no whole character by its bytes, as OpenAI writes it."""
    raw = encoder.decode_bytes([id_])
    if not raw:  # a mark, which stands for no text
        return encoder.decode([id_], specials=True)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def completion_logprobs(
    encoder: Encoder, tokens: Sequence[Token], likeliest: int, begin: int
) -> dict[str, Any]:
    """`logprobs` of a completion; offsets count characters from `begin`."""
    texts = [spelt(encoder, token.id) for token in tokens]
    # A character may take several tokens: it is counted with its last one.
    characters = codecs.getincrementaldecoder("utf-8")("replace")
    sizes = [len(characters.decode(encoder.decode_bytes([token.id]))) for token in tokens]
    # SentencePiece begins a text with a space that is not the text's own.
    if begin == 0 and sum(sizes) > len(encoder.decode([token.id for token in tokens])):
        first = next(number for number, size in enumerate(sizes) if size)
        sizes[first] -= 1
    offsets = list(itertools.accumulate(sizes, initial=begin))[:-1]
    known = [None if math.isnan(token.log_prob) else token.log_prob for token in tokens]
    tops = [
        None if one is None else _top(encoder, token, likeliest)
        for one, token in zip(known, tokens, strict=True)
    ]
    return {
        "tokens": texts,
        "token_logprobs": known,
        "top_logprobs": tops if likeliest else None,
        "text_offset": offsets,
    }


def _top(encoder: Encoder, token: Token, likeliest: int) -> dict[str, float]:
    """By text, of which two tokens may have the same: then the likelier one's."""
    found: dict[str, float] = {}
    for id_, log_prob in token.likeliest[:likeliest]:
        found.setdefault(spelt(encoder, id_), log_prob)
    found.setdefault(spelt(encoder, token.id), token.log_prob)
    return found


def chat_logprobs(encoder: Encoder, tokens: Sequence[Token]) -> dict[str, Any]:
    """`logprobs` of a chat's answer."""
    return {
        "content": [
            {
                **_scored(encoder, token.id, token.log_prob),
                "top_logprobs": [_scored(encoder, *pair) for pair in token.likeliest],
            }
            for token in tokens
        ]
    }


def _scored(encoder: Encoder, id_: int, log_prob: float) -> dict[str, Any]:
    raw = encoder.decode_bytes([id_])
    return {"token": spelt(encoder, id_), "logprob": max(log_prob, -9999.0), "bytes": list(raw)}
