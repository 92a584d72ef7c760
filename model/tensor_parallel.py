"""Layers divided among several processes: tensor parallelism, and of experts expert parallelism.

Shoeybi et al. 2019 (Megatron-LM), section 3. Of two matrices in a row a process has some outputs of
the first and, of the second, the inputs that take them: whole heads of attention, a stretch of the
feed-forward width. What the second makes is then a sum over the processes, added up once on the way
forward and, for the gradients of what went in, once on the way back. Embeddings, norms, the LM head
and biases of the second matrix are whole on every process, and all compute the same with them.

Routed experts are divided whole, each process having as many of them. All have all tokens and one
router's choice, and what experts make is summed in the same way: nothing is sent to an expert.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from model.attention import Attention, CrossAttention
from model.experts import ExpertLayer
from model.feedforward import FeedForward


@dataclass(frozen=True)
class Team:
    """The processes that have a network together, and this one's place among them."""

    group: Any = None
    rank: int = 0
    size: int = 1

    def sum(self, x: Tensor) -> Tensor:
        """The sum over the processes, without gradient; the same bits on each."""
        # A copy: `all_reduce` writes in place, and autograd may need what came in.
        total = x.detach().clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=self.group)
        return total

    def gather(self, x: Tensor) -> list[Tensor]:
        """What every process passed, by rank."""
        found = [torch.empty_like(x) for _ in range(self.size)]
        dist.all_gather(found, x.detach().contiguous(), group=self.group)
        return found


@dataclass(frozen=True)
class Split:
    """How a parameter is divided: each of the sections along a dimension into equal stretches.

    Sections are the matrices that one holds together, such as queries, keys and values.
    """

    dim: int
    sections: tuple[int, ...]
    shape: tuple[int, ...]
    """Of the whole."""

    def part(self, whole: Tensor, team: Team) -> Tensor:
        """What of the whole this process has."""
        sections = whole.view(self.shape).split(self.sections, self.dim)
        return torch.cat([s.chunk(team.size, self.dim)[team.rank] for s in sections], self.dim)

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """The whole, of the parts of all processes by rank."""
        own = [size // len(parts) for size in self.sections]
        shape = list(self.shape)
        shape[self.dim] = sum(own)
        parts = [part.view(shape) for part in parts]
        sections = zip(*(part.split(own, self.dim) for part in parts), strict=True)
        return torch.cat([torch.cat(pieces, self.dim) for pieces in sections], self.dim)


def splits(module: nn.Module) -> dict[str, Split]:
    """How the parameters of a whole module can be divided, by name; others cannot be."""
    return {
        f"{name}.{own}": split
        for name, layer in module.named_modules()
        for own, split in _splits(layer)
    }


def divide(module: nn.Module, team: Team) -> None:
    """Leave this process its part of a module's layers.

    Parameters stay the same objects, and `model_parallel` marks those that are divided: DeepSpeed
    asks for it. Sizes must divide by the number of processes.
    """
    for name, split in splits(module).items():
        parameter = module.get_parameter(name)
        # A clone, as a view would keep the memory of the whole.
        parameter.data = split.part(parameter.data, team).clone()
        parameter.model_parallel = True  # pyrefly: ignore[missing-attribute]
    for layer in list(module.modules()):
        _let_work_together(layer, team)


class ColumnLinear(nn.Module):
    """A linear layer of which each process has some outputs, `[..., f]`."""

    def __init__(self, linear: nn.Linear, team: Team) -> None:
        super().__init__()
        self.weight, self.bias, self.team = linear.weight, linear.bias, team

    def forward(self, x: Tensor) -> Tensor:
        """This process's outputs of an input that all have, `[..., D]`."""
        return F.linear(_Spread.apply(x, self.team), self.weight, self.bias)


class RowLinear(nn.Module):
    """A linear layer of which each process has some inputs, `[..., f]`."""

    def __init__(self, linear: nn.Linear, team: Team) -> None:
        super().__init__()
        self.weight, self.bias, self.team = linear.weight, linear.bias, team

    def forward(self, x: Tensor) -> Tensor:
        """All outputs, `[..., D]`, the same on every process."""
        y = _Sum.apply(F.linear(x, self.weight), self.team)
        # After the sum: before it each process would add the bias once more.
        return y if self.bias is None else y + self.bias.to(y.dtype)


class _Spread(torch.autograd.Function):
    """What all processes have, as an input of each one's own work (Megatron-LM's f)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, team: Team) -> Tensor:
        ctx.team = team
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.team.sum(gradients[0]), None


class _Sum(torch.autograd.Function):
    """The sum of what the processes have, on all of them (Megatron-LM's g)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, team: Team) -> Tensor:
        return team.sum(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None


def _matrices(layer: nn.Module) -> tuple[dict[str, tuple[int, ...]], str]:
    """The linear layers whose outputs are divided, with their sections, and the one whose inputs
    are; none of a layer that stays whole.
    """
    if isinstance(layer, Attention | CrossAttention):
        config = layer.config
        queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
        if isinstance(layer, Attention):
            return {"qkv": (queries, keys, keys)}, "out"
        return {"query": (queries,), "kv": (keys, keys)}, "out"
    if isinstance(layer, FeedForward):
        width = layer.down.in_features
        return {"up": (width,) * (layer.up.out_features // width)}, "down"
    return {}, ""


def _splits(layer: nn.Module) -> Iterator[tuple[str, Split]]:
    """The layer's parameters that are divided, by their names in it."""
    columns, row = _matrices(layer)
    for name, sections in columns.items():
        for kind, parameter in layer.get_submodule(name).named_parameters():
            yield f"{name}.{kind}", Split(0, sections, tuple(parameter.shape))
    if row:
        shape = tuple(layer.get_parameter(f"{row}.weight").shape)
        yield f"{row}.weight", Split(1, shape[1:], shape)
    if isinstance(layer, ExpertLayer):
        for name in ("up", "down"):
            shape = tuple(layer.get_parameter(name).shape)
            yield name, Split(0, shape[:1], shape)


def _let_work_together(layer: nn.Module, team: Team) -> None:
    """Let a layer whose parameters are divided work with those of the other processes."""
    columns, row = _matrices(layer)
    for name in columns:
        setattr(layer, name, ColumnLinear(getattr(layer, name), team))
    if row:
        setattr(layer, row, RowLinear(getattr(layer, row), team))
    if isinstance(layer, ExpertLayer):
        _sum_experts(layer, team)
    if isinstance(layer, Attention | CrossAttention):
        config = layer.config
        heads, kv_heads = config.heads // team.size, config.kv_heads // team.size
        layer.config = replace(config, heads=heads, kv_heads=kv_heads)
        if isinstance(layer, Attention) and config.qk_norm != "none":
            for norm in (layer.q_norm, layer.k_norm):  # each process has seen its heads only
                norm.weight.register_hook(team.sum)
        if config.dropout:
            numbers = _OwnNumbers(team)
            layer.register_forward_pre_hook(numbers.before)
            layer.register_forward_hook(numbers.after)


def _sum_experts(layer: ExpertLayer, team: Team) -> None:
    """Let a layer's experts be those of all processes, of which this one has so many in a row."""
    own, first = layer.routed, team.rank * len(layer.up)

    def routed(x_ND: Tensor, chosen_NA: Tensor, weights_NA: Tensor) -> Tensor:
        x_ND, weights_NA = _Spread.apply(x_ND, team), _Spread.apply(weights_NA, team)
        return _Sum.apply(own(x_ND, chosen_NA - first, weights_NA), team)

    layer.routed = routed


class _OwnNumbers:
    """Lets each process draw its own numbers in a layer, as they are for heads that others do not
    have, and after it the same as the others.
    """

    def __init__(self, team: Team) -> None:
        self.team = team

    def before(self, layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        """Part from the others."""
        # Drawn where all draw alike, so that all have the same seed and the same next number.
        seed = int(torch.randint(1 << 62, ()))
        self.alike = _generator(inputs[0]).get_state()
        _generator(inputs[0]).manual_seed(seed + self.team.rank)

    def after(self, layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        """Join them again."""
        _generator(output).set_state(self.alike)


def _generator(x: Tensor) -> torch.Generator:
    """Where random numbers of this tensor's device come from."""
    return torch.cuda.default_generators[x.device.index] if x.is_cuda else torch.default_generator
