"""Feeding tokens to a network: prompts at once, then a token a row and step, through its cache.

A decoder reads the prompts. An encoder-decoder's encoder does, and its decoder begins with
`start_ids`. Prompts of different lengths share a batch: shorter ones are padded with document 0,
which real tokens (document 1) do not see, so a row's logits do not depend on its company (but for
their last bits: kernels add up in another order for another number of rows).

Letters: B rows, T positions, V vocabulary.
"""

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from model.cache import Cache
from model.encoder_decoder import EncoderDecoder
from model.memory import Memory
from model.transformer import Transformer

Network = Transformer | EncoderDecoder
log = logging.getLogger("headrace.generation")


class Reader:
    """A network in evaluation mode, and what it has read; `room` tokens are to follow.

    A prompt too long for the context loses its beginning, with a warning. `compiled` fuses what
    `read` does between its matrix products: that takes half a minute the first time, and again for
    another network or number of rows. Raises `ValueError` for an empty prompt, when `room` leaves
    none for a prompt, for an encoder, and for an encoder-decoder without `start_ids`.
    """

    def __init__(
        self,
        network: Network,
        prompts: Sequence[Sequence[int]],
        room: int,
        start_ids: Sequence[int] = (),
        compiled: bool = False,
    ) -> None:
        check(network, prompts, room, start_ids)
        context = network.config.context
        self.network = network.eval()
        self.device = network.embedding.weight.device
        self.memory: Memory | None = None
        if isinstance(network, EncoderDecoder):
            sources = [fit(prompt, context) for prompt in prompts]
            self.memory = network.encode(*_padded(sources, self.device, left=False))
            prompts = [start_ids] * len(prompts)
        self.prompts = [fit(prompt, context - room) for prompt in prompts]
        self.cache = Cache(network.config, max(map(len, self.prompts)) + room)
        self.next_B1: Tensor | None = None
        """The next position of every row; None where all rows are as long as the cache."""
        self._step = _compiled_logits() if compiled else _logits

    def read_prompts(self) -> Tensor:
        """Logits `[B, V]` after each prompt's last token."""
        # On the left, so that the last column is every row's last token.
        tokens_BT, documents_BT = _padded(self.prompts, self.device, left=True)
        positions_BT = None
        if documents_BT is not None:
            positions_BT = (documents_BT.cumsum(1) - 1).clamp(min=0)
            self.next_B1 = positions_BT[:, -1:] + 1
        how = documents_BT, positions_BT, self.cache
        hidden_BD = _hidden(self.network, tokens_BT, self.memory, *how)[:, -1]
        return usable(self.network, self.network.logits(hidden_BD))

    def read(self, tokens_B: Tensor) -> Tensor:
        """Logits `[B, V]` after one more token a row."""
        return self._read(self._step, tokens_B[:, None])[:, 0]

    def read_many(self, tokens_BT: Tensor) -> Tensor:
        """Logits `[B, T, V]` after each of the next tokens of every row."""
        return self._read(_logits, tokens_BT)

    def _read(self, step: Callable[..., Tensor], tokens_BT: Tensor) -> Tensor:
        positions_BT = None
        if self.next_B1 is not None:
            positions_BT = self.next_B1 + torch.arange(tokens_BT.shape[1], device=self.device)
            self.next_B1 = positions_BT[:, -1:] + 1
        # No documents: new tokens belong to the last one of their row.
        how = None, positions_BT, self.cache
        return usable(
            self.network, step(self.network, tokens_BT.to(self.device), self.memory, *how)
        )

    def select(self, rows: Sequence[int]) -> None:
        """Go on with these rows, in this order; a row named twice is copied."""
        chosen = torch.tensor(rows, device=self.device)
        self.cache.select(chosen)
        if self.next_B1 is not None:
            self.next_B1 = self.next_B1[chosen]
        if self.memory is not None:
            self.memory = self.memory.select(chosen)


def usable(network: Network, logits: Tensor) -> Tensor:
    """The scores, those of ids minus infinity that are no token's; in place."""
    if network.usable is not None:
        logits[..., network.usable :] = -torch.inf
    return logits


def _hidden(network: Network, tokens_BT: Tensor, memory: Memory | None, *how: Any) -> Tensor:
    """Hidden states `[B, T, D]`; `how` is documents, positions and the cache."""
    if isinstance(network, EncoderDecoder):
        assert memory is not None
        return network.decode(tokens_BT, memory, *how)
    return network(tokens_BT, *how)


def _logits(network: Network, tokens_BT: Tensor, memory: Memory | None, *how: Any) -> Tensor:
    return network.logits(_hidden(network, tokens_BT, memory, *how))


@functools.cache
def _compiled_logits() -> Callable[..., Tensor]:
    """One function for all readers: it keeps a compiled version for each network and number of
    rows, up to the limit.
    """
    return torch.compile(_logits, recompile_limit=64)  # pyrefly: ignore[no-matching-overload]


def _padded(
    rows: list[list[int]], device: torch.device, *, left: bool
) -> tuple[Tensor, Tensor | None]:
    """Tokens and documents `[B, T]`, padded with 0; no documents where nothing is padded."""
    longest = max(map(len, rows))
    padding = [[0] * (longest - len(row)) for row in rows]
    ones = [[1] * len(row) for row in rows]

    def tensor(parts: list[list[int]]) -> Tensor:
        pairs = zip(padding, parts, strict=True)
        full = [pad + part if left else part + pad for pad, part in pairs]
        return torch.tensor(full, device=device)

    return tensor(rows), tensor(ones) if any(padding) else None


def fit(prompt: Sequence[int], keep: int) -> list[int]:
    """A prompt, without its beginning where it has more than `keep` tokens, with a warning."""
    if len(prompt) > keep:
        log.warning(
            "prompt cut from %d to its last %d tokens to fit the context", len(prompt), keep
        )
    return list(prompt[-keep:])


def check(
    network: Network, prompts: Sequence[Sequence[int]], room: int, start_ids: Sequence[int]
) -> None:
    """Raises as `Reader` does."""
    config = network.config
    if network.headless:
        raise ValueError("the model was tuned for another task and has no LM head to write by")
    if config.family == "encoder":
        raise ValueError("model.family is 'encoder'; only a decoder or encoder_decoder writes text")
    if config.family == "encoder_decoder" and not start_ids:
        raise ValueError("an encoder-decoder needs start_ids, the tokens its decoder begins with")
    if not prompts or not min(map(len, prompts)):
        raise ValueError("the prompt's length is 0; it must be at least 1")
    if room >= config.context:
        allowed = f"1 to {config.context - 1} (the context is {config.context})"
        raise ValueError(f"max_tokens is {room}; it must be {allowed}")
