"""Products of a few rows with a matrix on a CPU, with the matrix laid out for it.

    quick = packed(network)         # the same parameters, and a second copy of those in matrices
    small = packed(network, Half)   # its matrices in fp16, and none of the network's own

Decoding multiplies a row for each text. For one row, and for hundreds, PyTorch's product in fp32 is
as fast as any; between them MKL takes up to twice as long as oneDNN, whose matrices lie in blocks.
Few rows take as long as their matrix takes to be read from memory: in fp16 half as long, by FBGEMM,
which multiplies and adds up in fp32 (`benchmarks/decoding.py`).
"""

import copy
from typing import Protocol, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.transformer import LanguageModel

FEWEST, MOST = 2, 256
"""Rows of a product for which oneDNN's blocks are faster; others are left to PyTorch."""
SMALLEST = 2**18
"""Elements of a matrix below which the product is over too soon for it to matter."""
Network = TypeVar("Network", bound=LanguageModel)
Module = TypeVar("Module", bound=nn.Module)


class Layout(Protocol):
    """How the matrix of a linear layer lies in memory; makes a layer for inference of it."""

    def __call__(self, weight: Tensor, bias: Tensor | None) -> nn.Module:
        """The layer x W' + b, `[..., O]`, of `[..., I]`."""


class Blocks(nn.Module):
    """A matrix `[O, I]`; from the first product on that this speeds up also a copy in blocks."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight, self.bias = weight, bias
        self.blocks: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """x W' + b, `[..., O]`, of `[..., I]`."""
        rows = x.numel() // x.shape[-1]
        if not FEWEST <= rows <= MOST:
            return F.linear(x, self.weight, self.bias)
        if self.blocks is None:
            self.blocks = torch.ops.mkldnn._reorder_linear_weight(self.weight, FEWEST)
        return torch.ops.mkldnn._linear_pointwise(x, self.blocks, self.bias, "none", [], "")


class Half(nn.Module):
    """A matrix `[O, I]`, rounded to fp16: half the memory, and 11 bits of each number."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        of = None if bias is None else bias.detach()
        self.matrix = torch.ops.quantized.linear_prepack_fp16(weight.detach(), of)

    def forward(self, x: Tensor) -> Tensor:
        """x W' + b, `[..., O]`, of `[..., I]`, in fp32."""
        return torch.ops.quantized.linear_dynamic_fp16(x, self.matrix)


def packed(network: Network, layout: Layout = Blocks) -> Network:
    """The network for inference, its other parameters the same. Matrices that are not large, or not
    on a CPU, stay as they are; all do where PyTorch lacks the library, those in bf16 where the CPU
    has no product of it, and all but those in fp32 where they are to be `Half`.
    """
    if not available(layout):
        return network
    twin = _twin(network, layout)
    made = network.headless or network.multiply_head is not None
    if not made and _fits(network.head_weight, layout):
        head = layout(network.head_weight, network.head_bias)
        twin.multiply_head = head.forward
        if "head" in twin._modules:
            twin._modules["head"] = head
    return twin


def elements(network: LanguageModel) -> int:
    """How many numbers there are in matrices that can be `Half`."""
    linear = [part.weight for part in network.modules() if type(part) is nn.Linear]
    return sum(weight.numel() for weight in linear if _fits(weight, Half))


def available(layout: Layout) -> bool:
    """Whether PyTorch has the library that multiplies it."""
    if layout is Half:
        return "fbgemm" in torch.backends.quantized.supported_engines
    return torch.backends.mkldnn.is_available()


def _twin(module: Module, layout: Layout) -> Module:
    twin = copy.copy(module)
    twin._modules = {name: part and _packed(part, layout) for name, part in module._modules.items()}
    return twin


def _packed(part: nn.Module, layout: Layout) -> nn.Module:
    if type(part) is nn.Linear and _fits(part.weight, layout):
        return layout(part.weight, part.bias)
    return _twin(part, layout)


def _fits(weight: Tensor, layout: Layout) -> bool:
    known = weight.dtype == torch.float32 or (
        layout is Blocks
        and weight.dtype == torch.bfloat16
        and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )
    return (
        known
        and weight.device.type == "cpu"
        and weight.is_contiguous()
        and weight.numel() >= SMALLEST
    )
