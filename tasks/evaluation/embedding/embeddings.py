"""Contextual embeddings of texts from a model folder: Headrace's own, or a published encoder.

Letters: B texts, T tokens, D width.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from cluster.artifact import brought
from cluster.errors import BadInput
from model import hub
from model.encoder_decoder import EncoderDecoder
from tasks.evaluation.embedding.contextual import batches_by_length

SPACED = ("roberta", "gpt2")
"""Model types whose first word is written with a space before it, as their texts had it."""


@dataclass(frozen=True)
class Embedded:
    """A text: unit vectors `[T, D]` of its tokens, their ids, and which of them stand for text."""

    vectors_TD: Tensor
    ids: tuple[int, ...]
    real_T: Tensor

    def weights(self, idf: Mapping[int, float] | None = None) -> Tensor:
        """The share of each token, `[T]`, summing to 1; special tokens count nothing: with `idf`
        because every text has them, so that theirs is 0.
        """
        weights_T = torch.tensor([idf[i] for i in self.ids]) if idf else self.real_T.float()
        return weights_T / weights_T.sum().clamp_min(1e-12)


class TextEncoder:
    """The first `layer` layers of a model folder's encoder (of a decoder, its own)."""

    def __init__(self, folder: Path, layer: int | None = None) -> None:
        try:
            folder = brought(folder)
            network, about = hub.load(folder), hub.read_config(folder)
        except ValueError as error:
            raise BadInput(str(error)) from error
        stack = network.encoder if isinstance(network, EncoderDecoder) else network
        depth = len(stack.blocks)
        self.layer = depth if layer is None else layer
        if not 1 <= self.layer <= depth:
            raise BadInput(f"layer {layer}: {folder} has layers 1 to {depth}")
        if self.layer < depth:  # states between layers are not yet normalised by the last norm
            stack.blocks, stack.norm = stack.blocks[: self.layer], nn.Identity()
        self._network, self._stack = network.eval(), stack
        self._context = network.config.context
        self._lead = " " if about.get("model_type") in SPACED else ""
        self._tokenizer = _tokenizer(folder)

    @torch.inference_mode()
    def embed(self, texts: Sequence[str]) -> dict[str, Embedded]:
        """Each distinct text, embedded; those of like length together."""
        distinct = list(dict.fromkeys(texts))
        encoded = {text: self._encode(text) for text in distinct}
        found: dict[str, Embedded] = {}
        for numbers in batches_by_length([len(ids) for ids, _ in encoded.values()]):
            found |= self._run([distinct[n] for n in numbers], encoded)
        return found

    def _encode(self, text: str) -> tuple[list[int], list[bool]]:
        """Ids of a text, specials included, and which of them stand for text."""
        stripped = text.strip()
        encoding = self._tokenizer.encode(self._lead + stripped if stripped else "")
        ids, special = encoding.ids, encoding.special_tokens_mask
        if len(ids) > self._context:  # the text loses its end, not the closing special token
            cut = self._context - special[-1]
            ids, special = ids[:cut] + ids[-1:] * special[-1], special[:cut] + [1] * special[-1]
        return ids, [not mark for mark in special]

    def _run(
        self, texts: list[str], encoded: dict[str, tuple[list[int], list[bool]]]
    ) -> dict[str, Embedded]:
        sizes = [len(encoded[text][0]) for text in texts]
        longest = max(sizes, default=0)
        if not longest:
            empty = Embedded(torch.zeros(0, 1), (), torch.zeros(0, dtype=torch.bool))
            return dict.fromkeys(texts, empty)
        rows = [encoded[text][0] + [0] * (longest - len(encoded[text][0])) for text in texts]
        inputs_BT = torch.tensor(rows)
        lengths_B1 = torch.tensor(sizes)[:, None]
        documents_BT = (torch.arange(longest) < lengths_B1).long()
        states_BTD = self._stack.run(self._network.embed(inputs_BT), documents_BT)
        vectors_BTD = nn.functional.normalize(states_BTD.float(), dim=-1).cpu()
        return {
            text: Embedded(
                vectors_BTD[row, : sizes[row]],
                tuple(encoded[text][0]),
                torch.tensor(encoded[text][1], dtype=torch.bool),
            )
            for row, text in enumerate(texts)
        }


def inverse_frequencies(texts: Sequence[Embedded]) -> Mapping[int, float]:
    """log((N + 1) / (n + 1)) of each token id, n being how many of the N texts have it."""
    counts = Counter(index for text in texts for index in set(text.ids))
    total = len(texts) + 1

    class Frequencies(dict[int, float]):
        def __missing__(self, index: int) -> float:
            return math.log(total)

    return Frequencies({i: math.log(total / (n + 1)) for i, n in counts.items()})


def _tokenizer(folder: Path) -> Tokenizer:
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise BadInput(f"{folder} has no tokenizer.json; save it there with its fast tokenizer")
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer
