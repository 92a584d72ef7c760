"""What the processes of a stage leave for each other in its scratch folder, on whatever node.

On one disk that is no more than paths. Where the nodes of a run have homes of their own, a finished
folder goes through the shared store, under the same name:

    share(folder)        its maker: copied out, its record `parcel.json` last, and kept in the cache
    here(path)           a reader: where this file of it lies on this node, fetched if need be
    publish, obtain      one file that changes: the metrics of a training
    copy_out, copy_in    the files of a folder with a record of its own: a checkpoint

So what was finished outlives the node that made it.
"""

import contextlib
import shutil
from pathlib import Path
from typing import Any

from cluster.errors import StageFailed
from cluster.files import discard, write_atomically
from cluster.home import apart, home
from cluster.manifest import FETCHED, FileRecord, data_files, difference, record
from cluster.node_cache import adopt, fetched, store
from cluster.object_store import PARCEL
from cluster.settings import Record

ATTEMPTS = 5
FOLLOW_SECONDS = 5.0
"""How often what a stage says on its node is passed on to the command's."""


class Parcel(Record):
    """What is in a shared folder."""

    files: dict[str, FileRecord]


def name_of(path: Path) -> str:
    """What a place in a home is called in the shared store."""
    return path.relative_to(home()).as_posix()


def share(folder: Path) -> None:
    """Let all nodes find a finished folder; on one disk they do."""
    if not apart():
        return
    files = {file: record(folder / file) for file in data_files(folder)}
    text = Parcel(files=files).model_dump_json()
    store().put_all(name_of(folder), folder, files)
    store().write(f"{name_of(folder)}/{PARCEL}", text.encode())
    (folder / PARCEL).write_text(text)
    adopt(folder, _cached(folder))


def finished(folder: Path) -> bool:
    """Whether a process on some node has shared this folder, or made it on this disk."""
    return folder.exists() or (apart() and _parcel(folder) is not None)


def here(path: Path) -> Path:
    """Where a file of a finished folder lies on this node."""
    if not apart() or path.exists():
        return path
    parcel = _parcel(path.parent)
    if parcel is None or path.name not in parcel.files:
        raise FileNotFoundError(f"{path} is neither on this node nor in the shared store")
    return fetched(_cached(path.parent), path.name, parcel.files[path.name])


def all_here(folder: Path) -> Path:
    """Where a finished folder with all of its files lies on this node."""
    parcel = None if not apart() or folder.exists() else _parcel(folder)
    for file in parcel.files if parcel else ():
        here(folder / file)
    return _cached(folder) if parcel else folder


def forget(folder: Path) -> None:
    """Remove a folder of a scratch, or a scratch, on this node and for all others: whole, as a part
    of it would be gone on from.
    """
    with contextlib.suppress(OSError):
        discard(folder)
    if apart():
        store().remove(name_of(folder))
        shutil.rmtree(_cached(folder), ignore_errors=True)


def publish(*paths: Path) -> None:
    """Let all nodes find files as they are now."""
    for path in paths if apart() else ():
        about = record(path)
        store().put(name_of(path), path)
        store().write(f"{name_of(path)}.json", about.model_dump_json().encode())


def obtain(*paths: Path, growing: bool = False) -> list[Path]:
    """Put published files, as they were published last, where they would be on one disk; those
    that there are. One that is `growing`, and is as long here, may be written to by a process of
    this node: it stays. Raises StageFailed when what arrives is never what was published.
    """
    return [path for path in paths if (_obtained(path, growing) if apart() else path.exists())]


def _obtained(path: Path, growing: bool) -> bool:
    """Fetch one published file, compared with its record; whether there is such a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arriving = path.with_name(f".{path.name}.arriving")
    for _ in range(ATTEMPTS):  # it may be replaced between its record and itself
        text = store().read(f"{name_of(path)}.json")
        if text is None:
            return False
        about = FileRecord.model_validate_json(text)
        if growing and path.exists() and path.stat().st_size >= about.size:
            return True
        with contextlib.suppress(FileNotFoundError):
            store().get(name_of(path), arriving)
            if not difference(about, record(arriving)):
                arriving.replace(path)
                return True
    raise StageFailed(f"{store().at(name_of(path))} is not what was put there; run again")


def withdraw(path: Path) -> None:
    """Remove a published file, here and for all others."""
    path.unlink(missing_ok=True)
    unpublish(path)


def unpublish(path: Path) -> None:
    """Let no other node find a file any more."""
    if apart():
        store().remove(name_of(path))
        store().remove(f"{name_of(path)}.json")


def copy_out(path: Path, final: Path) -> None:
    """Put a file where other nodes find it as `final`; on one disk it gets there by itself."""
    if apart():
        store().put(name_of(final), path)


def copy_in(final: Path, path: Path) -> None:
    """Copy what another node put there. Raises FileNotFoundError when there is nothing."""
    store().get(name_of(final), path)


def names_in(folder: Path) -> list[str]:
    """What lies in a folder of a scratch, for all nodes."""
    if apart():
        return store().names(name_of(folder))
    return [path.name for path in folder.iterdir()] if folder.is_dir() else []


def storage(folder: Path) -> dict[str, Any]:
    """The arguments of Ray Train's `RunConfig` that say where its processes write to."""
    if not apart():
        return {"storage_path": str(folder)}
    from pyarrow.fs import FSSpecHandler, PyFileSystem

    shared = store()
    return {
        "storage_path": shared.at(name_of(folder)),
        "storage_filesystem": PyFileSystem(FSSpecHandler(shared.files)),
    }


def _cached(folder: Path) -> Path:
    return home() / FETCHED / name_of(folder)


def _parcel(folder: Path) -> Parcel | None:
    """What a shared folder holds; None when nobody has shared it."""
    kept = _cached(folder) / PARCEL
    if kept.exists():
        return Parcel.model_validate_json(kept.read_bytes())
    text = store().read(f"{name_of(folder)}/{PARCEL}")
    if text is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(kept, text.decode())
    return None if text is None else Parcel.model_validate_json(text)
