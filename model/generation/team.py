"""PyTorch's own threads, called to a kernel of `model.generation.kernels` at once.

    team.run("multiply", (rows, outputs, inputs), x, weight, product)

PyTorch's operators keep an OpenMP team awake, which takes 2 us to call; a pool of Python threads
would take a hundred.
"""

import ctypes
import functools
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor


def can_run() -> bool:
    """Whether there is Numba, and in this process the OpenMP that PyTorch runs its threads by."""
    return find_spec("numba") is not None and hasattr(ctypes.CDLL(None), "GOMP_parallel")


def run(kernel: str, sizes: Sequence[int], *tensors: Tensor, alone: bool = False) -> None:
    """Have all threads, or this one `alone`, call a kernel, with the interpreter's lock free.

    Never some of the threads: between teams of other sizes OpenMP ends threads and starts new ones.
    """
    numbers = (ctypes.c_int64 * len(sizes))(*sizes)
    addresses = ctypes.addressof(numbers), *(tensor.data_ptr() for tensor in tensors)
    job = (ctypes.c_void_p * len(addresses))(*addresses)
    _parallel()(_address(kernel), job, 1 if alone else torch.get_num_threads(), 0)


@functools.cache
def _parallel() -> Any:
    call = ctypes.CDLL(None).GOMP_parallel
    call.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    call.restype = None
    return call


@functools.cache
def _address(kernel: str) -> int:
    from model.generation import kernels

    address: int = getattr(kernels, kernel).address
    return address
