"""What a network remembers of the tokens it has read, so that each is read once.

Letters: B rows, K key-value heads, T new positions, S all positions so far, E head dimension.
"""

import torch
from torch import Tensor

from model.config import ModelConfig


class LayerCache:
    """Tensors `[B, K, S, *]` of one layer: keys and values, latents (`LatentAttention`), or the
    states of a cell.

    They lie at the start of buffers with room for more, so that a new token is one small copy.
    """

    def __init__(self, room: int = 0) -> None:
        self.length = 0
        self.room = room
        self.buffers: tuple[Tensor, ...] = ()
        self.memory: tuple[Tensor, Tensor] | None = None
        """Keys and values of an encoder's states, for cross attention."""

    def append(self, *new: Tensor) -> tuple[Tensor, ...]:
        """Add new positions `[B, K, T, *]`; each tensor with all positions so far."""
        end = self.length + new[0].shape[2]
        if not self.buffers or end > self.buffers[0].shape[2]:
            # Doubled: a token at a time, what was read is copied but a few times in all.
            self._grow(new, max(end, self.room, 2 * self.length))
        for buffer, tensor in zip(self.buffers, new, strict=True):
            buffer.narrow(2, self.length, tensor.shape[2]).copy_(tensor)
        self.length = end
        return tuple(buffer.narrow(2, 0, end) for buffer in self.buffers)

    def last(self) -> Tensor:
        """What was added last, `[B, K, E]`: of recurrent layers, the state they have come to."""
        return self.buffers[0][:, :, self.length - 1]

    def select(self, rows: Tensor) -> None:
        """Keep these rows in this order."""
        old, self.buffers = (
            self.buffers,
            tuple(buffer.new_empty(len(rows), *buffer.shape[1:]) for buffer in self.buffers),
        )
        for buffer, before in zip(self.buffers, old, strict=True):
            buffer[:, :, : self.length] = before[rows, :, : self.length]
        if self.memory is not None:
            keys, values = self.memory
            self.memory = keys[rows], values[rows]

    def _grow(self, like: tuple[Tensor, ...], room: int) -> None:
        old = self.buffers
        self.buffers = tuple(x.new_empty(*x.shape[:2], room, *x.shape[3:]) for x in like)
        for buffer, before in zip(self.buffers, old, strict=False):
            buffer[:, :, : self.length] = before[:, :, : self.length]


class Cache:
    """A `LayerCache` for every layer, and the document numbers of what was read.

    `room` positions are allocated at once when it is known how many there will be.
    """

    def __init__(self, config: ModelConfig, room: int = 0) -> None:
        self.layers = [LayerCache(room) for _ in range(config.depth)]
        self.documents_BS: Tensor | None = None
        self.single = True

    @property
    def length(self) -> int:
        """Positions read so far."""
        return self.layers[0].length

    def extend(self, documents_BT: Tensor | None, new: int) -> Tensor | None:
        """Document numbers `[B, S]` with those of `new` positions; None if each row has only one.

        Without `documents_BT` the new positions belong to the last document of their row.
        """
        if documents_BT is None:
            if self.documents_BS is None:
                return None
            documents_BT = self.documents_BS[:, -1:].expand(-1, new)
        else:
            assert self.documents_BS is not None or self.length == 0, "documents began too late"
            first = documents_BT if self.documents_BS is None else self.documents_BS
            self.single = self.single and bool((documents_BT == first[:, :1]).all())
        if self.documents_BS is not None:
            documents_BT = torch.cat((self.documents_BS, documents_BT), 1)
        self.documents_BS = documents_BT
        return None if self.single else documents_BT

    def begun(self, config: ModelConfig, length: int, room: int) -> "Cache":
        """Another cache that has read the first `length` positions of this one's only row."""
        other = Cache(config, room)
        for ours, theirs in zip(self.layers, other.layers, strict=True):
            theirs.append(*(buffer[:, :, :length] for buffer in ours.buffers))
        return other

    def select(self, rows: Tensor) -> None:
        """Keep these rows in this order; a row named twice is copied (beam search)."""
        if self.documents_BS is not None:
            self.documents_BS = self.documents_BS[rows]
        for layer in self.layers:
            layer.select(rows)
