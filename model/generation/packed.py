"""Products of a few rows with a matrix on a CPU, by oneDNN with the matrix laid out for it.

    quick = packed(network)  # the same parameters, and a second copy of those in matrices

Decoding multiplies a row for each text. For up to three rows, and for hundreds, PyTorch's product
is as fast as any; between them MKL takes up to twice as long as oneDNN, whose matrices lie in
blocks (`benchmarks/decoding.py`). It lays them out when first needed.
"""

import copy
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.transformer import LanguageModel

FEWEST, MOST = 4, 256
"""Rows of a product for which oneDNN's blocks are faster; others are left to PyTorch."""
SMALLEST = 2**18
"""Elements of a matrix below which the product is over too soon for it to matter."""
Network = TypeVar("Network", bound=LanguageModel)
Module = TypeVar("Module", bound=nn.Module)


class Packed:
    """A matrix `[O, I]`; from the first product on that this speeds up also a copy in blocks."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight
        self.blocks: Tensor | None = None

    def multiply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """x W' + b, `[..., O]`, of `[..., I]`."""
        rows = x.numel() // x.shape[-1]
        if not FEWEST <= rows <= MOST:
            return F.linear(x, self.weight, bias)
        if self.blocks is None:
            self.blocks = torch.ops.mkldnn._reorder_linear_weight(self.weight, FEWEST)
        return torch.ops.mkldnn._linear_pointwise(x, self.blocks, bias, "none", [], "")


class PackedLinear(nn.Module):
    """A linear layer for inference, with another's parameters."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        self.pack = Packed(linear.weight)

    def forward(self, x: Tensor) -> Tensor:
        """x W' + b, `[..., O]`, of `[..., I]`."""
        return self.pack.multiply(x, self.bias)


def packed(network: Network) -> Network:
    """The network for inference, with the same parameters. Matrices that are not large, or not on a
    CPU, stay as they are; all do where PyTorch has no oneDNN, those in bf16 where the CPU has no
    product of it.
    """
    if not torch.backends.mkldnn.is_available():
        return network
    twin = _twin(network)
    if _fits(network.head_weight):
        twin.multiply_head = Packed(network.head_weight).multiply
    return twin


def _twin(module: Module) -> Module:
    twin = copy.copy(module)
    twin._modules = {name: part and _packed(part) for name, part in module._modules.items()}
    return twin


def _packed(part: nn.Module) -> nn.Module:
    if type(part) is nn.Linear and _fits(part.weight):
        return PackedLinear(part)
    return _twin(part)


def _fits(weight: Tensor) -> bool:
    known = weight.dtype == torch.float32 or (
        weight.dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )
    return (
        known
        and weight.device.type == "cpu"
        and weight.is_contiguous()
        and weight.numel() >= SMALLEST
    )
