"""The folder that holds all state of Headrace on this machine: `$HEADRACE_HOME`, mode 0700."""

import os
from pathlib import Path

from cluster.errors import BadInput


def home() -> Path:
    """`$HEADRACE_HOME` or `~/.headrace`, created private to the user; BadInput for a file."""
    path = Path(os.environ.get("HEADRACE_HOME") or Path.home() / ".headrace").expanduser().resolve()
    if not path.exists():
        path.mkdir(parents=True, mode=0o700)
        path.chmod(0o700)
    elif not path.is_dir():
        raise BadInput(f"the home {path} is a file; name a folder, with --home or HEADRACE_HOME")
    return path


def subfolder(name: str) -> Path:
    """A folder of the home, created on first use: artifacts, work, runs, prefect, mlflow, ..."""
    path = home() / name
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path
