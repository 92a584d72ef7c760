"""Networks that no process ever holds: built without data, of each weight the part of one rank.

    shards = Shards(rank=0, size=64)
    with asked(shards):
        with shard_by_shard():
            network = build(config)         # on the meta device
    shards.kept[network.embedding.weight]   # this rank's part, flat

Every rank draws every weight, one after another, as all of them are drawn at once elsewhere: the
numbers are the same bits whatever the number of ranks, and one whole weight is held at a time.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
DRAWS = (aten.uniform_.default, aten.normal_.default)
"""What constructors of PyTorch's layers draw by."""


@dataclass
class Shards:
    """What one of `size` ranks keeps of each weight: a stretch of its flattened numbers, equally
    long on all ranks, with zeros behind the weight's end.
    """

    rank: int
    size: int
    kept: dict[nn.Parameter, Tensor] = field(default_factory=dict)
    _room: Tensor = field(default_factory=lambda: torch.empty(0))

    def keep(self, parameter: nn.Parameter, whole: Tensor) -> None:
        """Keep this rank's part of a weight."""
        length = -(-parameter.numel() // self.size)
        if parameter not in self.kept:
            self.kept[parameter] = torch.zeros(length, device="cpu")
        part = whole.detach().flatten()[self.rank * length :][:length]
        self.kept[parameter][: len(part)] = part

    def room(self, shapes: Iterable[torch.Size]) -> Iterator[Tensor]:
        """Tensors of these shapes, not set to anything, in one buffer that each call uses again: to
        allocate and free whole weights between shards that stay would fragment the memory.
        """
        shapes = list(shapes)
        sizes = [shape.numel() for shape in shapes]
        if sum(sizes) > len(self._room):
            self._room = torch.empty(sum(sizes), device="cpu")
        parts = self._room[: sum(sizes)].split(sizes)
        return (part.view(shape) for part, shape in zip(parts, shapes, strict=True))


_asked: ContextVar[Shards | None] = ContextVar("shards", default=None)


@contextmanager
def asked(shards: Shards | None) -> Iterator[None]:
    """In the block, networks are built shard by shard, and `shards` filled; with None whole."""
    token = _asked.set(shards)
    try:
        yield
    finally:
        _asked.reset(token)


@contextmanager
def shard_by_shard() -> Iterator[None]:
    """Build networks on the meta device where their shards are asked for, else as they are."""
    shards = _asked.get()
    if shards is None:
        yield
        return
    with torch.device("meta"), _Drawing(shards):
        yield


@torch.no_grad()
def fill(network: nn.Module, named: Iterable[tuple[str, Tensor]]) -> None:
    """Give a network other weights than it was built with, all of them, as they come."""
    own, shards = network.state_dict(keep_vars=True), _asked.get()
    left = set(own)
    for name, tensor in named:
        one = own[name]
        assert one.shape == tensor.shape, f"{name} is {one.shape}, and {tensor.shape} is given"
        if shards is not None and isinstance(one, nn.Parameter):
            shards.keep(one, tensor)
        else:
            one.copy_(tensor)
        left.remove(name)
    assert not left, f"{sorted(left)} are not given"


@contextmanager
def whole(module: nn.Module) -> Iterator[None]:
    """In the block, a module's own weights can be written to. Those on the meta device are whole
    tensors in main memory meanwhile, of which this rank's part is kept at its end. Buffers, which
    are small and start as zeros, are in main memory from then on.
    """
    shards = _asked.get()
    if shards is None:
        yield
        return
    for name, buffer in module.named_buffers(recurse=False):
        setattr(module, name, torch.zeros_like(buffer, device="cpu"))
    own = {name: one for name, one in module.named_parameters(recurse=False) if one.is_meta}
    room = shards.room(parameter.shape for parameter in own.values())
    for name, empty in zip(own, room, strict=True):
        setattr(module, name, nn.Parameter(empty))
    yield
    for name, parameter in own.items():
        shards.keep(parameter, getattr(module, name))
        setattr(module, name, parameter)


class _Drawing(TorchDispatchMode):
    """Has constructors draw for tensors without data as for others, and throws it away: the random
    generator is then where it would be, and what is drawn later is the same.
    """

    def __init__(self, shards: Shards) -> None:
        super().__init__()
        self.shards = shards

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in DRAWS and args[0].is_meta:
            (room,) = self.shards.room([args[0].shape])
            func(room, *args[1:], **(kwargs or {}))
        return func(*args, **(kwargs or {}))
