"""Steps of a stage whose results are Arrow files in its scratch folder, one per item of work.

What is there is not done again (`tasks.data.blocks`).
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from cluster.fan_out import fan_out
from cluster.handover import here
from cluster.store import Draft
from tasks.data.blocks import full_disk_named, make_block

Item = TypeVar("Item")
TABLE = "table.arrow"


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
    write = partial(make_block, folder, partial(_write, work))
    for block in fan_out(write, list(enumerate(items)), at_once):
        paths.append(block / TABLE)
        draft.progress(len(paths), len(items), f"blocks, {name}")
    return paths


def load(path: Path) -> pa.Table:
    """A phase's file, mapped into memory: only what is used is read."""
    with pa.memory_map(str(here(path))) as source, pa.ipc.open_file(source) as reader:
        return reader.read_all()


def save(path: Path, table: pa.Table) -> None:
    """Write a table as an Arrow file, a record batch per chunk."""
    with path.open("wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def _write(work: Callable[[Item], pa.Table], number: int, item: Item, folder: Path) -> None:
    try:
        table = work(item)
    except Exception as error:
        error.add_note(f"while making {folder.parent}, {number}")
        raise
    with full_disk_named(folder.parent, table.nbytes):
        save(folder / TABLE, table)
