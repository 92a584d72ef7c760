"""Native passes over Arrow's text buffers: compiled by Numba at first use, then kept.

    @kernel
    def count_newlines(data: Bytes, offsets: Offsets, out: Counts) -> None: ...

A kernel takes the bytes of a whole batch and the offsets of its texts (`buffers.text_buffer`),
never a Python string. The machine code is kept in `$HEADRACE_HOME/kernels/<hash of the sources>`:
Numba itself notices a change in a kernel's own file only, not in a file whose kernels it calls.
"""

import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from cluster.home import subfolder

Function = TypeVar("Function", bound=Callable[..., Any])
MARK = b"tasks.data.kernels"


def kernel(function: Function) -> Function:
    """Compile a function in nopython mode, without the interpreter's lock."""
    import numba

    setattr(numba.config, "CACHE_DIR", str(cache_folder()))  # noqa: B010 (made at run time)
    compile: Callable[[Function], Any] = numba.njit(cache=True, nogil=True, error_model="numpy")
    return compile(function)


@cache
def cache_folder() -> Path:
    """Where compiled kernels and tables of this version of the sources are kept.

    `NUMBA_CACHE_DIR`, where the user sets it, takes the place of `$HEADRACE_HOME/kernels`.
    """
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parents[2].rglob("*.py")):
        if MARK in (source := path.read_bytes()):
            digest.update(source)
    root = os.environ.get("NUMBA_CACHE_DIR")
    folder = (Path(root) if root else subfolder("kernels")) / digest.hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    return folder
