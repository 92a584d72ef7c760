"""Databases of the services: whole or not there, and made once."""

import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from cluster.databases import create_database

MAKE = """
import sqlite3, sys, time
from cluster.databases import *
def make(path):
    for name in ("first", "second"):
        with sqlite3.connect(path) as database:
            database.execute(f"CREATE TABLE {name} (a)")
        time.sleep(float(sys.argv[2]))
create_database(Path(sys.argv[1]), "mlflow", make)
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder that knows of no database yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/headrace/databases"


def tables(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as database:
        found = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return sorted(name for (name,) in found)


def test_a_database_whose_making_is_killed_is_made_again(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "one.db"
    command = [sys.executable, "-c", MAKE, str(path)]
    making = subprocess.Popen([*command, "60"])
    while not list(cache.glob("*/growing.db")):
        assert making.poll() is None
        time.sleep(0.002)
    making.kill()
    making.wait()
    assert not path.exists()
    subprocess.run([*command, "0"], check=True)
    assert tables(path) == ["first", "second"]


@pytest.mark.usefixtures("cache")
def test_another_home_gets_a_copy_and_what_is_there_stays(tmp_path: Path) -> None:
    made = []

    def make(path: Path) -> None:
        made.append(path)
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("CREATE TABLE empty (a)")

    for name in ("one.db", "two.db", "one.db"):
        create_database(tmp_path / name, "prefect", make)
        with closing(sqlite3.connect(tmp_path / name)) as database, database:
            database.execute("INSERT INTO empty VALUES (1)")
    assert len(made) == 1
    with closing(sqlite3.connect(tmp_path / "one.db")) as database:
        assert database.execute("SELECT count(*) FROM empty").fetchone() == (2,)
    with closing(sqlite3.connect(tmp_path / "two.db")) as database:
        assert database.execute("SELECT count(*) FROM empty").fetchone() == (1,)


def test_a_table_whose_change_was_killed_is_mended(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    with closing(sqlite3.connect(path)) as database, database:
        for name in ("runs", "_alembic_tmp_runs", "_alembic_tmp_tags"):
            database.execute(f"CREATE TABLE {name} (a)")
    create_database(path, "mlflow", lambda path: pytest.fail("there is one"))
    assert tables(path) == ["runs", "tags"]


def test_both_services_take_what_is_made(tmp_path: Path) -> None:
    """MLflow makes its first experiment anew, where its files belong to the home that opens it.
    (Kept where those of the services are kept: to make both takes 17 CPU seconds.)
    """
    from mlflow import MlflowClient

    from cluster import mlflow_sender, prefect_process

    create_database(tmp_path / "mlflow.db", "mlflow", mlflow_sender.make_database)
    experiments = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db").search_experiments()
    assert [experiment.name for experiment in experiments] == ["Default"]
    assert experiments[0].artifact_location == f"{Path.cwd()}/mlruns/0"
    create_database(tmp_path / "prefect.db", "prefect", prefect_process.make_database)
    assert {"flow_run", "task_run", "alembic_version"} <= set(tables(tmp_path / "prefect.db"))
