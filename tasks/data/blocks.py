"""Work on text block by block: in this process when there is little, else on every node's CPUs.

A block is one file of a text artifact (or, for `read`, a group of source files). Each becomes files
of its own and an account; nothing but the item decides what they hold, so the outcome is the same
for any number of workers. Finished blocks lie in the stage's scratch folder: a stage that was
killed goes on with the others.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from cluster.artifact import Artifact
from cluster.fan_out import fan_out
from cluster.files import sync, write_atomically
from cluster.store import Draft
from tasks.data.ledger import Account, Sorter
from tasks.data.text import PATTERN, file_batches

Item = TypeVar("Item")
ACCOUNT = "account.json"
# Below this, starting workers costs more than they save.
SMALL_BYTES = 96 << 20


def map_text(
    text: Artifact, draft: Draft, work: Callable[[Iterator[pa.RecordBatch], Sorter], None]
) -> Account:
    """Sort the rows of every file of a text artifact; the account is closed into the draft.

    `work(batches, rows)` is picklable: a module's function, or a `partial` of one.
    """
    paths = text.files(PATTERN)
    sizes = [path.stat().st_size * 3 for path in paths]  # Zstandard halves to quarters text
    account = sort_blocks(draft, paths, partial(_sort_file, work), sizes)
    account.close(draft)
    return account


def _sort_file(
    work: Callable[[Iterator[pa.RecordBatch], Sorter], None], path: Path, rows: Sorter
) -> None:
    work(file_batches(path), rows)


def sort_blocks(
    draft: Draft,
    items: Sequence[Item],
    work: Callable[[Item, Sorter], None],
    sizes: Sequence[int],
) -> Account:
    """Run `work(item, rows)` for every item; their files go to the draft, their accounts add up.

    `sizes` are bytes of text by item, for progress and to tell whether workers are worth starting.
    """
    done, total, whole = 0, sum(sizes), Account()
    folder = draft.scratch / "blocks"
    folder.mkdir(exist_ok=True)
    at_once = 1 if total < SMALL_BYTES else draft.placement.data_workers
    numbered = list(enumerate(items))
    for number, account in enumerate(
        fan_out(partial(_sort_block, folder, work), numbered, at_once)
    ):
        whole.add(account)
        done += sizes[number]
        draft.progress(done, max(1, total), "bytes")
    for path in sorted(folder.glob("[!.]*/*.parquet")):
        (draft.path / path.name).hardlink_to(path)
    return whole


def _sort_block(
    folder: Path, work: Callable[[Item, Sorter], None], numbered: tuple[int, Item]
) -> Account:
    """One block, unless it was finished before; it appears in the folder complete or not at all."""
    number, item = numbered
    final, temporary = folder / f"{number:05d}", folder / f".{number:05d}"
    if (final / ACCOUNT).exists():
        return Account.model_validate_json((final / ACCOUNT).read_text())
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    with Sorter(temporary, number) as rows:
        work(item, rows)
    write_atomically(temporary / ACCOUNT, rows.account.model_dump_json())
    for path in temporary.iterdir():
        sync(path)
    temporary.rename(final)
    return rows.account
