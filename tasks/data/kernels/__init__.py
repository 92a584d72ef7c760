"""Native passes over Arrow's text buffers: compiled by Numba at first use, then kept.

    @kernel
    def count_newlines(data: Bytes, offsets: Offsets, out: Counts) -> None: ...

A kernel takes the bytes of a whole batch and the offsets of its texts (`buffers.text_buffer`),
never a Python string. `caching` says what the machine code is kept by.
"""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from cluster.home import subfolder

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile a function in nopython mode, without the interpreter's lock."""
    import numba

    from tasks.data.kernels.caching import KernelCache

    compile: Callable[[Function], Any] = numba.njit(nogil=True, error_model="numpy")
    compiled = compile(function)
    compiled._cache = KernelCache(function)
    return compiled  # type: ignore[no-any-return]


@cache
def cache_folder() -> Path:
    """Where this user's compiled kernels and tables are kept, whatever the clone and the home:
    `$NUMBA_CACHE_DIR`, or `headrace` in the cache folder of the system, `~/.cache`.

    Where nothing can be written there, as for a user without a home, `$HEADRACE_HOME/kernels`.
    """
    given, system = os.environ.get("NUMBA_CACHE_DIR"), os.environ.get("XDG_CACHE_HOME")
    try:
        folder = Path(given or Path(system or Path.home() / ".cache") / "headrace")
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        writable = os.access(folder, os.W_OK)
    except (OSError, RuntimeError):
        writable = False
    return folder if writable else subfolder("kernels")
