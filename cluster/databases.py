"""The databases of Prefect and MLflow in a home, each made whole or not at all.

A library makes the first form of its tables and changes it in a hundred steps (9 CPU seconds of
Prefect's). A kill between two would leave what it can neither open nor go on with, so a database is
made beside its place. What is made is kept, for this version: other homes get a copy.

    create_database(home / "mlflow/mlflow.db", "mlflow", make)
"""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing, suppress
from importlib.metadata import version
from pathlib import Path

from cluster.home import cache_folder

COPY = "_alembic_tmp_"
"""What the name of a table's copy begins with."""


def create_database(path: Path, library: str, make: Callable[[Path], object]) -> None:
    """Put a library's empty database in its place; `make` makes it. One that is there stays, and is
    mended. For the one process that will open it first.
    """
    if path.exists():
        _mend(path)
        return
    kept = cache_folder("databases") / f"{library}-{version(library)}.db"
    if not kept.exists():
        with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
            growing, whole = Path(folder, "growing.db"), Path(folder, "whole.db")
            make(growing)
            with closing(sqlite3.connect(growing)) as database:
                database.execute("VACUUM INTO ?", (str(whole),))  # its journal, too, in one file
            _place(whole, kept)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        _place(Path(shutil.copyfile(kept, Path(folder, "whole.db"))), path)


def _mend(path: Path) -> None:
    """Undo what a kill left of the change of a table, which SQLite makes by a copy: without this
    the library cannot change it again, and does not start.
    """
    with closing(sqlite3.connect(path, timeout=60)) as database, database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        for copy in sorted(name for name in tables if name.startswith(COPY)):
            table = copy.removeprefix(COPY)
            if table in tables:
                database.execute(f'DROP TABLE "{copy}"')
            else:  # killed between its end and the copy's new name
                database.execute(f'ALTER TABLE "{copy}" RENAME TO "{table}"')


def _place(made: Path, path: Path) -> None:
    with suppress(FileExistsError):
        os.link(made, path)  # the first of several processes wins
