"""The folder that holds all state of Headrace on this machine: `$HEADRACE_HOME`, mode 0700."""

import os
from pathlib import Path

from cluster.errors import BadInput


def home() -> Path:
    """`$HEADRACE_HOME` or `~/.headrace`, created private to the user; BadInput for a file."""
    path = Path(os.environ.get("HEADRACE_HOME") or Path.home() / ".headrace").expanduser().resolve()
    if path.exists() and not path.is_dir():
        raise BadInput(f"the home {path} is a file; name a folder, with --home or HEADRACE_HOME")
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)  # another process may be as far
    except FileNotFoundError as error:  # a file system in which nothing is made, as /proc
        raise BadInput(
            f"the home {path} cannot be made; name another, with --home or HEADRACE_HOME"
        ) from error
    return path


def subfolder(name: str) -> Path:
    """A folder of the home, created on first use: artifacts, work, runs, prefect, mlflow, ..."""
    path = home() / name
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path


def cache_folder(name: str) -> Path:
    """A folder for what can be made anew, compiled kernels or bytecode, which all clones and homes
    of a user share: in `headrace` in the system's cache folder, `~/.cache`.

    Where nothing can be written there, as for a user without a home, in `$HEADRACE_HOME/cache`.
    """
    try:
        system = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = system / "headrace" / name
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        writable = os.access(folder, os.W_OK)
    except (OSError, RuntimeError):
        writable = False
    return folder if writable else subfolder(f"cache/{name}")
