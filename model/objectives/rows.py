"""Rows: the tokens an objective made of a sample, laid out as a batch has them.

A batch is a dict of int64 arrays. `inputs`, `targets` (-100: no loss), `documents` (0: padding; a
token sees its own document only) and `positions` are `[B, T]`. An encoder-decoder's
`decoder_inputs` are `[B, U]`, and its `targets` lie beside them. Where an objective needs them:
`prefix` `[B, T]` (1: seen both ways), `segments` `[B, T]` (0 or 1: which of two texts), `order`
`[B, T]` (in which place a token is predicted: `masks.in_order`), `labels` `[B]`, `draws` `[B, T]`
(float64, uniform: the random numbers a sampled token is drawn with).

Letters: B rows, T and U positions, N tokens of a text, V vocabulary.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

Row = dict[str, np.ndarray]
IGNORED = -100
FILL = {"targets": IGNORED}  # of padding; `inputs` are filled with the pad token, the rest with 0
DECODER = ("decoder_inputs", "targets")


@dataclass(frozen=True)
class Vocabulary:
    """What an objective must know of a tokenizer.

    `ids` has the special tokens by kind: `end` (of a document), `pad`, and those that the objective
    asks for: `mask`, `class`, `separator`, `sentinel_0`, ... `ordinary_N` are the ids of all other
    tokens; `ends_sentence_V` is True for tokens after which a sentence ends.
    """

    ids: Mapping[str, int]
    ordinary_N: np.ndarray
    ends_sentence_V: np.ndarray

    def __getitem__(self, kind: str) -> int:
        return self.ids[kind]

    @cached_property
    def ordinary_V(self) -> np.ndarray:
        """True for tokens that are not special."""
        found = np.zeros(len(self.ends_sentence_V), bool)
        found[self.ordinary_N] = True
        return found

    def sentinels(self, count: int) -> np.ndarray:
        """The first sentinels `[count]`."""
        return np.array([self.ids[f"sentinel_{i}"] for i in range(count)], np.int64)


def documents_row(tokens_N: np.ndarray, vocabulary: Vocabulary, length: int) -> Row:
    """`inputs`, `documents` and `positions` of an encoder: a class token in front of each document.

    A document ends with its end token. What no longer fits into `length` is cut off.
    """
    starts = np.flatnonzero(tokens_N[:-1] == vocabulary["end"]) + 1
    starts = np.concatenate(([0], starts))
    inputs = np.insert(tokens_N, starts, vocabulary["class"])[:length]
    begins = np.zeros(len(tokens_N) + len(starts), bool)
    begins[starts + np.arange(len(starts))] = True
    documents = np.cumsum(begins)[:length]
    index = np.arange(len(inputs))
    first = np.maximum.accumulate(np.where(begins[:length], index, 0))
    return {"inputs": inputs, "documents": documents, "positions": index - first}


def text_row(*parts: np.ndarray | Sequence[int]) -> Row:
    """`inputs`, `documents` and `positions` of one text in parts."""
    inputs = np.concatenate([np.asarray(part, np.int64) for part in parts])
    index = np.arange(len(inputs))
    return {"inputs": inputs, "documents": np.ones_like(index), "positions": index}


def sequence_to_sequence_row(
    source_N: np.ndarray, target_N: np.ndarray, start: int, head: Sequence[int] = ()
) -> Row:
    """An encoder reads head and source, a decoder writes the target behind its start token."""
    shifted = np.concatenate(([start], target_N[:-1]))
    return text_row(head, source_N) | {"decoder_inputs": shifted, "targets": target_N}


def prefix_row(source_N: np.ndarray, target_N: np.ndarray, head: Sequence[int] = ()) -> Row:
    """A decoder reads head and source both ways, and goes on with the target."""
    row = text_row(head, source_N, target_N[:-1])
    seen = len(head) + len(source_N)
    prefix = np.zeros_like(row["inputs"])
    prefix[:seen] = 1
    targets = np.full_like(row["inputs"], IGNORED)
    targets[seen - 1 :] = target_N
    return row | {"prefix": prefix, "targets": targets}


def stack(rows: Sequence[Row], length: int, target_length: int, pad: int) -> Row:
    """A batch of rows, each padded to `length`, a decoder's side to `target_length`."""
    batch = {}
    for name in rows[0]:
        decoder = "decoder_inputs" in rows[0] and name in DECODER
        fill = pad if name.endswith("inputs") else FILL.get(name, 0)
        columns = target_length if decoder else length
        batch[name] = np.stack([_padded(row[name], columns, fill) for row in rows])
    return batch


def _padded(values: np.ndarray, length: int, fill: int) -> np.ndarray:
    if values.ndim == 0:
        return values
    values = values[:length]
    out = np.full(length, fill, np.float64 if values.dtype.kind == "f" else np.int64)
    out[: len(values)] = values
    return out
