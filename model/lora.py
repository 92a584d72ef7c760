"""Low-rank adapters: a frozen matrix W learns a difference B A of low rank (Hu et al. 2021, LoRA).

    y = W x + b + scale B A x        A: rank x inputs, B: outputs x rank, scale = alpha / rank

Of a matrix that holds several (queries, keys and values), each piece of rows may have an adapter of
its own, as it has where the pieces are separate matrices. B starts at zero: the network is at first
what it was, or what 4 bits leave of it where W is kept in them (QLoRA, Dettmers et al. 2023).
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from model import four_bits


@dataclass(frozen=True)
class LoraShape:
    """Rank of the adapters; alpha, of which alpha / rank is the factor on B A; dropout of what goes
    into them; whether the frozen matrix is kept in 4 bits.
    """

    rank: int
    alpha: float
    dropout: float = 0.0
    in_4_bits: bool = False

    @property
    def scale(self) -> float:
        """The factor on B A."""
        return self.alpha / self.rank


class LoraLinear(nn.Linear):
    """A linear layer whose weight is that of another, with adapters for some pieces of its rows.

    `lora_A` and `lora_B` have them by the number of the piece.
    """

    def __init__(
        self, linear: nn.Linear, rows: Sequence[int], pieces: Collection[int], shape: LoraShape
    ) -> None:
        size = linear.in_features, linear.out_features
        super().__init__(*size, bias=linear.bias is not None, device="meta")
        self.weight, self.bias = linear.weight, linear.bias
        if shape.in_4_bits:
            self.weight = four_bits.pack(linear.weight)
        self.rows, self.shape, self.original = tuple(rows), shape, None
        self.dropout = nn.Dropout(shape.dropout)
        self.lora_A = nn.ModuleDict(
            {str(i): nn.Linear(linear.in_features, shape.rank, bias=False) for i in pieces}
        )
        self.lora_B = nn.ModuleDict(
            {str(i): nn.Linear(shape.rank, self.rows[i], bias=False) for i in pieces}
        )
        for _, _, up in self.pieces():
            nn.init.zeros_(up)

    original: tuple[Tensor] | None
    """The weight as it was, while the adapters are in it; in a tuple it is no parameter."""

    def forward(self, x: Tensor) -> Tensor:
        """Of vectors `[..., inputs]`, `[..., outputs]`."""
        if self.original is not None:
            return super().forward(x)
        packed = four_bits.is_packed(self.weight)
        y = four_bits.multiply(x, self.weight, self.bias) if packed else super().forward(x)
        parts, x = list(y.split(self.rows, -1)), self.dropout(x)
        for piece, down in self.lora_A.items():
            low = self.shape.scale * self.lora_B[piece](down(x))
            parts[int(piece)] = parts[int(piece)] + low
        return torch.cat(parts, -1) if len(parts) > 1 else parts[0]

    def pieces(self) -> Iterator[tuple[int, Tensor, Tensor]]:
        """The number of each piece that has an adapter, with its A and B."""
        for piece in self.lora_A:
            name = f"{piece}.weight"
            yield int(piece), self.lora_A.get_parameter(name), self.lora_B.get_parameter(name)

    @torch.no_grad()
    def merge(self) -> None:
        """Add the adapters to the weight; it goes on without them."""
        self.original = (self.weight,)
        packed = four_bits.is_packed(self.weight)
        whole = four_bits.unpack(self.weight) if packed else self.weight.data
        parts = list(whole.split(self.rows))
        for piece, down, up in self.pieces():
            parts[piece] = parts[piece] + self.shape.scale * (up @ down)
        self.weight = nn.Parameter(torch.cat(parts), self.weight.requires_grad)

    def unmerge(self) -> None:
        """Give the weight back, to the bit."""
        assert self.original is not None, "its adapters are not in its weight"
        (self.weight,), self.original = self.original, None


def adapted(network: nn.Module) -> list[tuple[str, LoraLinear]]:
    """The layers of a network that have adapters, by name."""
    return [(name, m) for name, m in network.named_modules() if isinstance(m, LoraLinear)]


@contextmanager
def merged(network: nn.Module) -> Iterator[None]:
    """For as long as it lasts, the adapters of a network are in its weights."""
    layers = [layer for _, layer in adapted(network)]
    for layer in layers:
        layer.merge()
    try:
        yield
    finally:
        for layer in layers:
            layer.unmerge()


def fold(network: nn.Module) -> None:
    """Add the adapters of a network to its weights, for good; its layers are plain ones again."""
    for name, layer in adapted(network):
        layer.merge()
        size = layer.in_features, layer.out_features
        plain = nn.Linear(*size, bias=layer.bias is not None, device="meta")
        plain.weight, plain.bias = layer.weight, layer.bias
        network.set_submodule(name, plain)
