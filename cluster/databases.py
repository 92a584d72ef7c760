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


def create_database(path: Path, library: str, make: Callable[[Path], object]) -> None:
    """Put a library's empty database in its place, unless one is there; `make` makes it."""
    if path.exists():
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


def _place(made: Path, path: Path) -> None:
    with suppress(FileExistsError):
        os.link(made, path)  # the first of several processes wins
