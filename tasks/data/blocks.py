"""Work on text block by block: in this process when there is little, else on every node's CPUs.

A block is one file of a text artifact (or, for `read`, a group of source files). Each becomes files
of its own and an account; nothing but the item decides what they hold, so the outcome is the same
for any number of workers. Finished blocks lie in the stage's scratch folder: a stage that was
killed goes on with the others. Where nodes have homes of their own, blocks go through the shared
store (`cluster.handover`).
"""

import contextlib
import errno
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from cluster.artifact import Artifact, DataFile
from cluster.errors import BadInput
from cluster.fan_out import fan_out
from cluster.files import sync, write_atomically
from cluster.handover import all_here, finished, forget, share
from cluster.store import Draft
from tasks.data.ledger import Account, Splitter
from tasks.data.text import PATTERN, check_rows, file_batches

Item = TypeVar("Item")
ACCOUNT = "account.json"
# Below this, starting workers costs more than they save.
SMALL_BYTES = 96 << 20
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def map_text(
    text: Artifact, draft: Draft, work: Callable[[Iterator[pa.RecordBatch], Splitter], None]
) -> Account:
    """Split the rows of every file of a text artifact; the account is closed into the draft.

    Raises BadInput when the files are not what the artifact's manifest says, or not all its rows.
    `work(batches, rows)` is picklable: a module's function, or a `partial` of one.
    """
    files = text.files(PATTERN)
    account = split_blocks(draft, files, partial(_work_on_file, work), text_sizes(files))
    with forgetting(draft):
        check_rows(text, account.rows_in)
    account.close(draft)
    return account


def text_sizes(files: Sequence[DataFile]) -> list[int]:
    """About how many bytes of text each file of a text artifact holds."""
    return [file.record.size * 3 for file in files]  # Zstandard leaves a half to a quarter of text


def _work_on_file(
    work: Callable[[Iterator[pa.RecordBatch], Splitter], None], file: DataFile, rows: Splitter
) -> None:
    try:
        work(file_batches(file), rows)
    except Exception as error:
        error.add_note(f"while working on {file.path}")
        raise


def split_blocks(
    draft: Draft,
    items: Sequence[Item],
    work: Callable[[Item, Splitter], None],
    sizes: Sequence[int],
) -> Account:
    """Run `work(item, rows)` for every item; their files go to the draft, their accounts add up.

    `sizes`, errors and resumption are those of `make_blocks`.
    """
    whole = Account()
    for folder in make_blocks(draft, items, partial(_split_item, work), sizes):
        whole.add(Account.model_validate_json((folder / ACCOUNT).read_text()))
        with full_disk_named(draft.path):
            for path in folder.glob("*.parquet"):
                (draft.path / path.name).hardlink_to(path)
    return whole


def make_blocks(
    draft: Draft,
    items: Sequence[Item],
    write: Callable[[int, Item, Path], None],
    sizes: Sequence[int],
    unit: str = "bytes",
    alone: bool | None = None,
) -> Iterator[Path]:
    """Run `write(number, item, folder)` for every item; the finished folders, in order.

    `sizes` are those of the items, in a `unit`, for progress. In bytes of text they also decide
    whether the work stays in this process; in another unit `alone` says so.
    A draft has one such pass. An error of `write` is raised as it is, and the finished blocks stay
    for the next attempt. Raises BadInput when the disk is full.
    """
    done, total = 0, max(1, sum(sizes))
    folder = _folder(draft)
    folder.mkdir(exist_ok=True)
    for left in folder.glob(".*"):  # of a worker that was killed
        shutil.rmtree(left, ignore_errors=True)
    alone = total < SMALL_BYTES if alone is None else alone
    at_once = 1 if alone else draft.placement.data_workers
    numbered = list(enumerate(items))
    draft.progress(0, total, unit)
    for size, path in zip(
        sizes, fan_out(partial(make_block, folder, write), numbered, at_once), strict=True
    ):
        yield all_here(path)
        done += size
        draft.progress(done, total, unit)


def forget_blocks(draft: Draft) -> None:
    """Remove the finished blocks: what they were made from has changed."""
    forget(_folder(draft))


@contextlib.contextmanager
def forgetting(draft: Draft) -> Iterator[None]:
    """Remove the finished blocks where the body raises BadInput: no next attempt may use them."""
    try:
        yield
    except BadInput:
        forget_blocks(draft)
        raise


def _folder(draft: Draft) -> Path:
    return draft.scratch / "blocks"


def make_block(
    folder: Path, write: Callable[[int, Item, Path], None], numbered: tuple[int, Item]
) -> Path:
    """One block, unless it was finished before; it appears in the folder complete or not at all."""
    number, item = numbered
    final = folder / f"{number:05d}"
    if not finished(final):
        # Ray may start a block again while a worker it has lost is still at it.
        temporary = folder / f".{final.name}-{uuid.uuid4().hex[:8]}"
        try:
            with full_disk_named(folder):
                temporary.mkdir(parents=True)
                write(number, item, temporary)
                for path in temporary.iterdir():
                    sync(path)
            _publish(temporary, final)
            share(final)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return final


def _split_item(
    work: Callable[[Item, Splitter], None], number: int, item: Item, folder: Path
) -> None:
    with Splitter(folder, number) as rows:
        work(item, rows)
    write_atomically(folder / ACCOUNT, rows.account.model_dump_json())


def _publish(temporary: Path, final: Path) -> None:
    try:
        temporary.rename(final)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # another attempt was first
            raise
    sync(final.parent)


@contextlib.contextmanager
def full_disk_named(folder: Path, needed: int = 0) -> Iterator[None]:
    """Raise BadInput, which names the folder and the bytes `needed` where they are known, where
    writing in it fails for want of space.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        more = f", which needs about {needed:,} bytes more" if needed else ""
        raise BadInput(
            f"no space left in {folder}{more}: {error}. Free some, or set HEADRACE_HOME to a "
            "larger disk, and run again: what is finished is kept"
        ) from error
