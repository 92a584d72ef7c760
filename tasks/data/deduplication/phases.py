"""Steps of a stage whose results are Arrow files in its scratch folder, one per item of work.

A file appears complete or not at all, whoever is killed while writing it; what is there is not done
again. Ray may run one item twice at a time: each attempt writes a file of its own name.
"""

import os
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from cluster.fan_out import fan_out
from cluster.store import Draft
from tasks.data.blocks import full_disk_named

Item = TypeVar("Item")


def phase(
    draft: Draft,
    name: str,
    work: Callable[[Item], pa.Table],
    items: Sequence[Item],
    at_once: int | None,
) -> list[Path]:
    """The files with `work(item)` for every item, in order; `work` is picklable.

    Raises BadInput naming the folder when its disk is full.
    """
    folder = draft.scratch / name
    folder.mkdir(exist_ok=True)
    paths = []
    for path in fan_out(partial(_once, folder, work), list(enumerate(items)), at_once):
        paths.append(path)
        draft.progress(len(paths), len(items), f"blocks, {name}")
    return paths


def load(path: Path) -> pa.Table:
    """A phase's file, mapped into memory: only what is used is read."""
    with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as reader:
        return reader.read_all()


def save(path: Path, table: pa.Table) -> None:
    """Write a table as an Arrow file, a record batch per chunk, and sync it."""
    with path.open("wb") as sink:
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        sink.flush()
        os.fsync(sink.fileno())


def _once(folder: Path, work: Callable[[Item], pa.Table], numbered: tuple[int, Item]) -> Path:
    number, item = numbered
    path = folder / f"{number:05d}.arrow"
    if not path.exists():
        try:
            table = work(item)
        except Exception as error:
            error.add_note(f"while making {path}")
            raise
        temporary = folder / f".{number:05d}-{secrets.token_hex(8)}"
        try:
            with full_disk_named(folder, table.nbytes):
                save(temporary, table)
                temporary.rename(path)
        finally:
            temporary.unlink(missing_ok=True)
    return path
