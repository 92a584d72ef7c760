"""Where compiled kernels and tables are kept."""

import os
from functools import cache
from pathlib import Path

from cluster.home import subfolder


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
