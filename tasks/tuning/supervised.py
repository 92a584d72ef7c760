"""Supervised examples laid into rows of one length, several to a row, attention kept apart."""

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from tasks.tokens.chat import NO_LOSS
from tasks.tokens.permutation import permute
from tasks.tuning.settings import EarlyStoppingSettings

if TYPE_CHECKING:
    from tasks.tokens.encoder import Encoder

Example = tuple[Sequence[int], Sequence[int]]


def pack(examples: Sequence[Example], context: int, pad: int) -> dict[str, np.ndarray]:
    """Examples (inputs, targets) in order, a new row whenever the next one does not fit.

    Returns int64 arrays [rows, context]: `inputs` (`pad` where empty), `targets` (-100 where
    empty), `documents` (1.. within the row, 0 where empty), `positions` (from 0 in each example).
    """
    rows = rows_of([len(inputs) for inputs, _ in examples], context)
    shape = (len(rows), context)
    batch = {
        "inputs": np.full(shape, pad, np.int64),
        "targets": np.full(shape, NO_LOSS, np.int64),
        "documents": np.zeros(shape, np.int64),
        "positions": np.zeros(shape, np.int64),
    }
    for row, numbers in enumerate(rows):
        start = 0
        for document, number in enumerate(numbers, start=1):
            inputs, targets = examples[number]
            here = np.s_[row, start : start + len(inputs)]
            batch["inputs"][here] = inputs
            batch["targets"][here] = targets
            batch["documents"][here] = document
            batch["positions"][here] = np.arange(len(inputs))
            start += len(inputs)
    return batch


def marked(encoder: "Encoder", example: Example) -> str:
    """An example decoded with its special tokens, and what is taught between ⟦ and ⟧."""
    inputs, targets = example
    told = [(inputs[0], False)] + [
        (target, True) if target != NO_LOSS else (following, False)
        for target, following in zip(targets, [*inputs[1:], NO_LOSS], strict=True)
        if target != NO_LOSS or following != NO_LOSS
    ]
    text = ""
    for taught, run in groupby(told, key=lambda token: token[1]):
        part = encoder.decode([token for token, _ in run], specials=True)
        text += f"⟦{part}⟧" if taught else part
    return text


def rows_of(lengths: Sequence[int], context: int) -> list[list[int]]:
    """Example numbers of each row; asserts that every example fits a row."""
    rows: list[list[int]] = []
    used = context
    for number, length in enumerate(lengths):
        assert 0 < length <= context, f"example {number} has {length} tokens, a row {context}"
        if used + length > context:
            rows.append([])
            used = 0
        rows[-1].append(number)
        used += length
    return rows


def parted(rows: int, asked: EarlyStoppingSettings | None) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the rows to train on, and of those by whose loss training may stop: a random
    share, the same with every seed; none by default. At least one row is on either side.
    """
    numbers = np.arange(rows)
    count = 0 if asked is None else min(rows - 1, max(1, round(asked.share * rows)))
    apart = np.isin(numbers, permute(numbers[:count], rows, 0, 0))
    return numbers[~apart], numbers[apart]


def sample_numbers(first: int, count: int, samples: int, seed: int) -> np.ndarray:
    """Which of `samples` rows the global sample numbers first..first+count are, int64 [count].

    Every epoch is a permutation of its own, keyed by (seed, epoch).
    """
    epochs, places = np.divmod(np.arange(first, first + count), samples)
    chosen = np.empty(count, np.int64)
    for epoch in np.unique(epochs):
        here = epochs == epoch
        chosen[here] = permute(places[here], samples, seed, int(epoch))
    return chosen
