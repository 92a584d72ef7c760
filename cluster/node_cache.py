"""What this node has fetched of the shared store: below `$HEADRACE_HOME/fetched`, file by file.

    fetched/<stage>/<recipe>-<fingerprint[:8]>/    an artifact: its manifest, and files asked for
    fetched/work/<stage>-<fingerprint[:8]>/...     folders that a stage's processes share

A file is fetched when it is first asked for, once for all processes of the node, and compared with
its record. Together the files have a budget, `HEADRACE_CACHE_BYTES` (a quarter of the disk where it
is not set): those longest not used go, but none in a folder that a process uses. What is used stays
so until `release`, or until the process ends.
"""

import contextlib
import fcntl
import hashlib
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from cluster.errors import BadInput
from cluster.files import put_in_place, write_atomically
from cluster.locks import is_held, lock
from cluster.manifest import FETCHED, MANIFEST, FileRecord, difference, record
from cluster.names import inside
from cluster.object_store import ObjectStore, from_environment

LOCKS = 64  # two files of one lock wait for each other; lock files are never removed
MOST_USED = 256  # folders held at a time; what was opened in others stays readable though removed
log = logging.getLogger("headrace.store")
_used: dict[Path, int] = {}


def fetched(folder: Path, file: str, about: FileRecord) -> Path:
    """A file of a folder of the cache, fetched if it is not there.

    Raises BadInput when the store lacks it or it is damaged: an artifact is then withdrawn.
    """
    top = _top(folder)
    path = inside(top, f"{folder.relative_to(top)}/{file}")
    use(folder)
    if not _is_whole(path, about):
        turn = _turn(path)
        arriving = turn.with_suffix(".part")
        with lock(turn):
            if not _is_whole(path, about):
                _fetch(path.relative_to(top).as_posix(), arriving, about)
                path.parent.mkdir(parents=True, exist_ok=True)
                arriving.replace(path)
                trim(top)
    os.utime(path)
    return path


def keep_manifest(folder: Path) -> None:
    """Put an artifact's manifest, as the store has it now, into its folder of the cache; what was
    fetched of one that was replaced since goes. Raises BadInput when the store has none.
    """
    shared, name = store(), folder.relative_to(_top(folder)).as_posix()
    kept = inside(_top(folder), f"{name}/{MANIFEST}")
    text = shared.read(f"{name}/{MANIFEST}")
    if text is None:
        raise BadInput(f"{shared.at(name)} is not an artifact: it has no {MANIFEST}")
    if not _holds(kept, text):
        with lock(_turn(kept)):
            if not _holds(kept, text):
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True, exist_ok=True)
                write_atomically(kept, text.decode())


def adopt(folder: Path, final: Path) -> None:
    """Make a folder, of which the store has a copy by now, one of the cache."""
    final.parent.mkdir(parents=True, exist_ok=True)
    put_in_place(folder, final)
    trim(_top(final))


def store() -> ObjectStore:
    """The shared store; there is one where there is a cache of it."""
    found = from_environment()
    if found is None:
        raise BadInput("what lies in a shared store cannot be read: set HEADRACE_STORE to its URL")
    return found


def _top(folder: Path) -> Path:
    return next(path for path in folder.parents if path.name == FETCHED)


def use(folder: Path) -> None:
    """Let nothing in a folder be removed before `release`."""
    if len(_used) >= MOST_USED:
        os.close(_used.pop(next(iter(_used))))
    while folder not in _used:
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # removed just now
            handle = os.open(folder, os.O_RDONLY)
            fcntl.flock(handle, fcntl.LOCK_SH)
            _used[folder] = handle


def release() -> None:
    """What this process used may go: the end of a task."""
    while _used:
        os.close(_used.popitem()[1])


def trim(top: Path) -> None:
    """Remove what was longest not used until the rest is within the budget."""
    busy = top / ".locks" / "trim"
    if is_held(busy):
        return
    with lock(busy):
        found = sorted(_files(top), key=lambda pair: pair[1].st_mtime_ns)
        excess = sum(about.st_size for _, about in found) - budget(top)
        for path, about in found:
            if excess <= 0:
                return
            if _remove(path):
                excess -= about.st_size


def budget(folder: Path) -> int:
    """The bytes that may lie in a cache. Raises BadInput where the user's are no number."""
    asked = os.environ.get("HEADRACE_CACHE_BYTES")
    try:
        return int(float(asked)) if asked else shutil.disk_usage(folder).total // 4
    except ValueError as error:
        raise BadInput(f"HEADRACE_CACHE_BYTES is {asked!r}, no number of bytes: 20e9") from error


def _files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """The data files of a cache; manifests stay, so that their artifacts are known."""
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                if name != MANIFEST and not name.startswith("."):
                    yield Path(parent, name), Path(parent, name).stat()


def _remove(path: Path) -> bool:
    """Remove a file unless a process uses the folder of its artifact, or one above."""
    with contextlib.ExitStack() as stack:
        for folder in path.parents:
            if folder.name == FETCHED:
                break
            with contextlib.suppress(FileNotFoundError):
                handle = os.open(folder, os.O_RDONLY)
                stack.callback(os.close, handle)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return False
        path.unlink(missing_ok=True)
    return True


def _turn(path: Path) -> Path:
    """The lock of who fetches a file: the others wait, and find it there."""
    number = int.from_bytes(hashlib.sha256(str(path).encode()).digest()[:4]) % LOCKS
    return _top(path) / ".locks" / f"{number}"


def _holds(path: Path, text: bytes) -> bool:
    return path.exists() and path.read_bytes() == text


def _is_whole(path: Path, about: FileRecord) -> bool:
    return path.is_file() and path.stat().st_size == about.size


def _fetch(name: str, here: Path, about: FileRecord) -> None:
    """Copy a file here and compare every byte of it; twice, as the way may be at fault."""
    shared, why = store(), ""
    for _ in range(2):
        try:
            shared.get(name, here)
        except FileNotFoundError:
            why = "missing"
            continue
        why = difference(about, record(here)) or ""
        if not why:
            log.info("fetched %s", shared.at(name))
            return
    folder = name.rpartition("/")[0] if name.startswith("work/") else "/".join(name.split("/")[:2])
    shared.withdraw(folder)
    raise BadInput(
        f"damaged in object storage: {shared.at(name)}: {why}; {folder} is withdrawn from it, so "
        "that the same command makes it again"
    )
