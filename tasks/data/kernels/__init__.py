"""Native passes over Arrow's text buffers: compiled by Numba at first use, then kept.

    @kernel
    def count_newlines(data: Bytes, offsets: Offsets, out: Counts) -> None: ...

A kernel takes the bytes of a whole batch and the offsets of its texts (`buffers.text_buffer`),
never a Python string. `caching` says what the machine code is kept by.
"""

from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile a function in nopython mode, without the interpreter's lock."""
    import numba
    from numba.core import entrypoints

    from tasks.data.kernels.caching import KernelCache

    # Else the first call imports all packages that extend Numba: awkward, which comes with a
    # tokenizer's library, for .7 s in every process. No kernel takes types of theirs.
    entrypoints._already_initialized = True
    # "numpy": a division that checks for zero and raises would keep loops from being vectorised.
    compile: Callable[[Function], Any] = numba.njit(nogil=True, error_model="numpy")
    compiled = compile(function)
    compiled._cache = KernelCache(function)
    return compiled
