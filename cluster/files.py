"""Writes that survive a crash: the old file or the new one, never half of either."""

import contextlib
import errno
import os
import shutil
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """Replace a small text file so that a reader or a crash sees the old or the new one, whole."""
    # Beside the file, as a rename is atomic within one file system only; of a name of this
    # process's own, so that two that write at once do not write into one file.
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        # Else a power cut may leave the new name on a file without its contents.
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
    # No rename replaces a folder with files in it. Another process may put its own here between the
    # two renames: then that one steps aside, in the next round.
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
