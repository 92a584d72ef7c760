"""Batches for a causal network, made of tokens.

An end-of-document token ends one document as a target, and begins the next one as an input: the
first word of a document is predicted from it alone, and attention need not leave a document.
"""

from collections.abc import Sequence

import numpy as np

Batch = dict[str, np.ndarray]
"""`inputs`, `targets` (-100: no loss), `documents` (0: padding, else 1, 2, ... within the row) and
`positions` (from 0 in each document), all int64 [B, T]."""

NO_LOSS = -100


def assemble(tokens_BL: np.ndarray, eod: int, tombstone: int | None = None) -> Batch:
    """A batch from windows of T + 1 tokens. Inputs and targets share their memory."""
    wide_BL = tokens_BL.astype(np.int64)
    documents_BT, positions_BT = _boundaries(tokens_BL[:, :-1] == eod)
    batch = {
        "inputs": wide_BL[:, :-1],
        "targets": wide_BL[:, 1:],
        "documents": documents_BT,
        "positions": positions_BT,
    }
    return batch if tombstone is None else buried(batch, tombstone)


def buried(batch: Batch, tombstone: int) -> Batch:
    """A batch in which a tombstone, which stands where a token was erased, is padding: neither it
    nor what follows it is predicted, and no other token sees it.
    """
    dead_BT = batch["inputs"] == tombstone
    silent_BT = dead_BT | (batch["targets"] == tombstone)
    if not silent_BT.any():
        return batch
    emptied = {name: np.where(dead_BT, 0, values) for name, values in batch.items()}
    return emptied | {"targets": np.where(silent_BT, NO_LOSS, batch["targets"])}


def assemble_rows(
    rows: Sequence[Sequence[np.ndarray]], context: int, eod: int, tombstone: int | None = None
) -> Batch:
    """A batch from rows of pieces, each with the token before its first target, and padding.

    A piece begins a document even where it goes on with one that was cut.
    """
    inputs_BT = np.zeros((len(rows), context), np.int64)
    targets_BT = np.full((len(rows), context), NO_LOSS)
    begins_BT = np.zeros((len(rows), context), bool)
    for row, pieces in enumerate(rows):
        column = 0
        for tokens_L in pieces:
            end = column + len(tokens_L) - 1
            inputs_BT[row, column:end] = tokens_L[:-1]
            targets_BT[row, column:end] = tokens_L[1:]
            begins_BT[row, column] = True
            column = end
    filled_BT = targets_BT != NO_LOSS
    documents_BT, positions_BT = _boundaries(begins_BT | (filled_BT & (inputs_BT == eod)))
    batch = {
        "inputs": inputs_BT,
        "targets": targets_BT,
        "documents": documents_BT * filled_BT,
        "positions": positions_BT * filled_BT,
    }
    return batch if tombstone is None else buried(batch, tombstone)


def padded(batch: Batch, context: int) -> Batch:
    """A batch with its rows filled up to `context` places."""
    fill = {"inputs": 0, "targets": NO_LOSS, "documents": 0, "positions": 0}
    missing = context - batch["inputs"].shape[1]
    return {
        name: np.pad(values, ((0, 0), (0, missing)), constant_values=fill[name])
        for name, values in batch.items()
    }


def _boundaries(begins_BT: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Documents and positions [B, T], given where documents begin; the first begins each row."""
    shape, (rows, context) = begins_BT.shape, begins_BT.shape
    begins_BT[:, 0] = True
    begin_D = np.flatnonzero(begins_BT)
    first_B = np.searchsorted(begin_D, np.arange(0, rows * context, context))
    number_D = np.arange(1, len(begin_D) + 1) - first_B[begin_D // context]
    length_D = np.diff(begin_D, append=rows * context)
    documents = np.repeat(number_D, length_D)
    positions = np.arange(rows * context)
    positions -= np.repeat(begin_D, length_D)
    return documents.reshape(shape), positions.reshape(shape)
