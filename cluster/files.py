"""Writes that survive a crash: the old file or the new one, never half of either."""

import contextlib
import errno
import os
import shutil
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


def put_in_place(new: Path, final: Path) -> None:
    """Give a finished folder its final name. One that lies there goes away whole, first."""
    old = _aside(final)
    while new.exists():
        with contextlib.suppress(FileNotFoundError):
            final.rename(old)
        try:
            new.rename(final)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # another process was first
                raise
        sync(final.parent)
        shutil.rmtree(old, ignore_errors=True)


def discard(folder: Path) -> None:
    """Remove a folder: its name is gone before the first of its files is."""
    old = _aside(folder)
    folder.rename(old)
    shutil.rmtree(old)


def leftovers(folder: Path) -> list[Path]:
    """What killed processes left of earlier folders of this name."""
    hidden = folder.parent.glob(".old-*")
    return [path for path in hidden if path.name.endswith(f"-{folder.name}")]


def _aside(folder: Path) -> Path:
    """The name, hidden, that a folder has while it is removed."""
    old = folder.with_name(f".old-{os.getpid()}-{folder.name}")
    shutil.rmtree(old, ignore_errors=True)
    return old
