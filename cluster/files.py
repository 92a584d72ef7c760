"""Writes that survive a crash: the old file or the new one, never half of either."""

import os
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """Replace a small text file so that a reader or a crash sees the old or the new one, whole."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync(path.parent)


def sync(folder: Path) -> None:
    """Make a rename in this folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
