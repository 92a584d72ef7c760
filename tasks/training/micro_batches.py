"""Batches cut into pieces that a device has room for, and what is counted of them."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from model.documents import BEGINS, begins_of
from model.objectives.places import PLACES, places_of
from model.objectives.rows import IGNORED
from tasks.training.job import Batch

Piece = dict[str, Tensor]


def pieces_of(batch: Batch, micro: int) -> list[Piece]:
    """The samples of a batch, so many at a time."""
    tensors = {key: torch.from_numpy(array) for key, array in batch.items()}
    samples = len(next(iter(tensors.values())))
    return [
        {key: tensor[start : start + micro] for key, tensor in tensors.items()}
        for start in range(0, samples, micro)
    ]


def staged(piece: Piece, module: Any) -> Piece:
    """A piece ready for a GPU: in pinned memory, from which it is copied while the GPU works, and
    with the begins of documents where the module takes them.
    """
    more = {}
    if getattr(module, "takes_begins", False) and "documents" in piece:
        begins = begins_of(piece["documents"].numpy())
        more = {} if begins is None else {BEGINS: torch.from_numpy(begins)}
    return {key: tensor.pin_memory() for key, tensor in (piece | more).items()}


def placed(piece: Piece, module: Any) -> Piece:
    """A piece that says where its targets are, if the module takes that."""
    if not getattr(module, "takes_places", False):
        return piece
    return piece | {PLACES: torch.from_numpy(places_of(piece["targets"].numpy()))}


def sent(piece: Piece, device: torch.device) -> Piece:
    """A piece on a device, or on its way there."""
    return {key: tensor.to(device, non_blocking=True) for key, tensor in piece.items()}


def on_device(batch: Batch, module: Any, device: torch.device | str) -> Piece:
    """A whole batch for a module on a device."""
    (piece,) = pieces_of(batch, len(batch["inputs"]))
    device = torch.device(device)
    return sent(staged(piece, module) if device.type == "cuda" else piece, device)


def count_tokens(batch: Batch) -> int:
    """Tokens of a batch: those that are not padding where documents are marked."""
    if "documents" in batch:
        return int(np.count_nonzero(batch["documents"]))
    return batch["inputs"].size


def count_targets(piece: Piece) -> int:
    """What the loss of a micro-batch is the mean of: targets, or rows where it has none."""
    if "targets" in piece:
        return int((piece["targets"] != IGNORED).sum())
    return len(piece["inputs"])


@torch.no_grad()
def mean_loss(engine: Any, batches: Iterable[Batch], device: torch.device) -> float:
    """The loss of a target of some batches, without dropout."""
    engine.eval()
    total, targets = 0.0, 0
    for batch in batches:
        (piece,) = pieces_of(batch, len(batch["inputs"]))
        count = count_targets(piece)
        total += count * engine(**on_device(batch, engine.module, device)).item()
        targets += count
    engine.train()
    return total / targets
