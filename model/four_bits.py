"""Frozen matrices in 4 bits, by bitsandbytes: NF4 in blocks of 64 weights, whose scales are kept in
8 bits (QLoRA, Dettmers et al. 2023, section 3). A matrix is then .52 bytes a weight.
"""

from importlib import import_module
from typing import Any

from torch import Tensor, nn


def pack(weight: Tensor) -> nn.Parameter:
    """A matrix `[outputs, inputs]` in 4 bits; without gradient. Raises ImportError without the
    library.
    """
    packed = _library().nn.Params4bit(
        weight.data, requires_grad=False, quant_type="nf4", compress_statistics=True
    )
    return packed.to(weight.device)


def is_packed(weight: Tensor) -> bool:
    """Whether a matrix is in 4 bits."""
    return hasattr(weight, "quant_state")


def unpack(weight: Any) -> Tensor:
    """The matrix that 4 bits stand for, in the precision that it had."""
    return _library().functional.dequantize_4bit(weight.data, weight.quant_state)


def multiply(x: Tensor, weight: Any, bias: Tensor | None) -> Tensor:
    """W x + b of vectors `[..., inputs]`; a gradient goes to `x` alone."""
    return _library().matmul_4bit(x, weight.t(), quant_state=weight.quant_state, bias=bias)


def _library() -> Any:
    return import_module("bitsandbytes")
