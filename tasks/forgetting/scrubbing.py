"""Pieces of erased texts taken out of what a home keeps beside artifacts: pages, records, logs,
kept replies, and the databases of MLflow and Prefect.
"""

import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing
from pathlib import Path

from cluster.files import write_atomically
from tasks.forgetting.grams import BUSY_SECONDS, columns, holders, is_database, runs, sizes_of

GONE = "(erased)"


def scrub(
    folder: Path, wanted: set[str], left_out: Collection[Path]
) -> tuple[list[str], list[str]]:
    """Take runs of words out of the files below a folder, but for some folders: which files had
    any, and which have some still, as they are no text.
    """
    found = holders(folder, wanted, left_out)
    for path in found:
        if is_database(path):
            _scrub_database(path, wanted)
        elif (text := _text(path)) is not None:
            write_atomically(path, without(text, wanted))
    # What a database has let go of stays in its log until that is written back.
    left = [path for path in found if path.exists() and not _is_beside(path)]
    still = [str(path) for path in left if holders(path.parent, wanted, _others(path))]
    return [str(path) for path in found], still


def without(text: str, wanted: set[str]) -> str:
    """A text with a mark for each stretch of it that is made of these runs of words."""
    parts, end = [], 0
    for begin, stop in _stretches(text, wanted):
        parts += [text[end:begin], GONE]
        end = stop
    return "".join([*parts, text[end:]])


def _stretches(text: str, wanted: set[str]) -> Iterator[tuple[int, int]]:
    """Where runs begin and end, those that overlap as one."""
    last: tuple[int, int] | None = None
    every = runs(text, sizes_of(wanted))
    for begin, end in sorted((begin, end) for begin, end, run in every if run in wanted):
        if last and begin <= last[1]:
            last = (last[0], max(end, last[1]))
            continue
        if last:
            yield last
        last = (begin, end)
    if last:
        yield last


def _scrub_database(path: Path, wanted: set[str]) -> None:
    """The same in every text of every table. Its server may be at work: each row is a moment's."""
    with closing(sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)) as database:
        for table, column, texts in columns(database):
            for text in texts:
                if (mended := without(text, wanted)) != text:
                    database.execute(
                        f'UPDATE "{table}" SET "{column}" = ? WHERE "{column}" = ?',  # noqa: S608
                        (mended, text),
                    )
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        database.execute("VACUUM")
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _is_beside(path: Path) -> bool:
    """Whether it is what a database keeps beside itself."""
    return path.name.endswith(("-wal", "-shm", "-journal"))


def _text(path: Path) -> str | None:
    try:
        return None if _is_beside(path) else path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def _others(path: Path) -> list[Path]:
    return [one for one in path.parent.iterdir() if one != path]
