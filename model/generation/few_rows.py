"""Products of a few rows with a matrix on a CPU, hardly slower than the matrix is read from memory.

    quick = with_quick_products(network)  # the same weights, for decoding

Decoding multiplies a row for each text. Matrix libraries are made for many rows: with eight, MKL
takes two to three times as long as it takes to read the matrix (`benchmarks/decoding.py`). Here
each row of weights is read once and multiplied with all inputs, which stay in the nearest cache.

Letters: I inputs, O outputs.
"""

import copy
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.attention import Attention, CrossAttention
from model.generation import one_query, team
from model.transformer import LanguageModel

MOST_ROWS = 16
"""With more, the library is as fast."""
ALONE = 2**15
"""As many weights are multiplied by one thread as soon as by all."""
Network = TypeVar("Network", bound=LanguageModel)
Module = TypeVar("Module", bound=nn.Module)


class QuickLinear(nn.Linear):
    """A linear layer for inference with `quick_linear`."""

    def forward(self, x: Tensor) -> Tensor:
        """x W' + b, `[..., O]`, of `[..., I]`."""
        return quick_linear(x, self.weight, self.bias)


def with_quick_products(network: Network) -> Network:
    """The network for inference: the same parameters and buffers in `QuickLinear`s, and attention
    by `one_query`.

    Layers whose weights are not fp32 on a CPU, by row, stay as they are; all do without Numba or
    where PyTorch's threads are not those of OpenMP.
    """
    if not team.can_run():
        return network
    quick = _quick(network)
    if _fits(network.head_weight):
        quick.multiply = quick_linear
    return quick


def _quick(module: Module) -> Module:
    twin = copy.copy(module)
    twin._modules = {name: part and _quick(part) for name, part in module._modules.items()}
    if isinstance(twin, nn.Linear) and _fits(twin.weight):
        twin.__class__ = QuickLinear  # type: ignore[assignment]
    if isinstance(twin, Attention | CrossAttention):
        twin.attend = one_query.attend
    return twin


def quick_linear(x: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """`torch.nn.functional.linear` but for the last bits; where rows are few, without gradients."""
    if x.numel() > MOST_ROWS * weight_OI.shape[1] or x.dtype != torch.float32:
        return F.linear(x, weight_OI, bias_O)
    compiling = torch.compiler.is_compiling()
    multiply = torch.ops.headrace.few_rows if compiling else _few_rows
    product: Tensor = multiply(x, weight_OI)
    return product if bias_O is None else product + bias_O


def _fits(weight: Tensor) -> bool:
    fp32 = weight.dtype == torch.float32 and weight.device.type == "cpu"
    return fp32 and weight.is_contiguous()


def _few_rows(x: Tensor, weight_OI: Tensor) -> Tensor:
    outputs, inputs = weight_OI.shape
    x = x.contiguous()
    product = x.new_empty(*x.shape[:-1], outputs)
    sizes = x.numel() // inputs, outputs, inputs
    team.run("multiply", sizes, x, weight_OI, product, alone=outputs * inputs <= ALONE)
    return product


torch.library.define("headrace::few_rows", "(Tensor x, Tensor weight) -> Tensor")
torch.library.impl("headrace::few_rows", "CPU", _few_rows)
torch.library.register_fake(
    "headrace::few_rows", lambda x, weight: x.new_empty(*x.shape[:-1], weight.shape[0])
)
