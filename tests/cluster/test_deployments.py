import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from uuid import UUID

import pytest
from prefect.context import refresh_global_settings_context
from prefect.exceptions import ObjectNotFound
from prefect.states import Running

from cluster import services
from cluster.deployments import deploy
from cluster.mlflow_tracking import PipelineRun
from cluster.prefect_server import client
from cluster.reaper import reap
from cluster.runs import RunRecord
from cluster.tracking import ended

HERE = str(Path(__file__).parent)


@pytest.fixture
def toy(shared_home: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The toy flows, where the processes of the worker find them too."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([HERE, str(Path.cwd())]))
    monkeypatch.syspath_prepend(HERE)
    services.up()
    import toy_flow

    return toy_flow


@pytest.fixture
def every_8_seconds(toy: ModuleType) -> Iterator[str]:
    """A schedule; were its deployment to stay, its runs would slow all tests that follow."""
    yield "* * * * * */8"
    with client() as server, contextlib.suppress(ObjectNotFound):
        server.delete_deployment(server.read_deployment_by_name("toy-scheduled/toy").id)


def wait_for(path: Path, seconds: float = 120.0) -> str:
    deadline = time.monotonic() + seconds
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.2)
    return path.read_text()


def test_a_scheduled_run_is_carried_out_by_the_worker(
    toy: ModuleType,
    shared_home: Path,
    every_8_seconds: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "cluster.py").write_text("raise RuntimeError('a module of the user')")
    monkeypatch.chdir(tmp_path)
    entrypoint = "toy_flow.scheduled_flow"
    marked = {"mark": "scheduled-mark"}
    soon = deploy(
        toy.scheduled_flow,
        entrypoint=entrypoint,
        name="toy",
        cron=every_8_seconds,
        parameters=marked,
    )
    assert soon["deployment"] == "toy-scheduled/toy"
    assert wait_for(shared_home / "scheduled-mark") == f"{sys.executable} in {Path.cwd()}"
    worker = services.alive("worker")
    nightly = deploy(
        toy.scheduled_flow, entrypoint=entrypoint, name="toy", cron="0 3 * * *", parameters=marked
    )
    assert "T03:00:00" in nightly["next_run"]
    assert services.alive("worker") == worker
    os.killpg(worker.pid, signal.SIGKILL)
    while services.alive("worker"):
        time.sleep(0.05)
    services.up()
    assert services.alive("worker") is not None


def test_a_killed_run_is_marked_everywhere(toy: ModuleType, shared_home: Path) -> None:
    code = "import toy_flow; toy_flow.endless_flow('endless-mark')"
    driver = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    flow_run_id = wait_for(shared_home / "endless-mark")
    driver.kill()
    driver.wait()
    tracked = PipelineRun.start("mine", "killed-run", {}, flow_run_id)
    record = RunRecord.start({"name": "mine"}, "all").model_copy(
        update={
            "flow_run_id": flow_run_id,
            "tracking_run": tracked.run_id,
            "process": RunRecord.start({"name": "x"}, "all").process | {"pid": driver.pid},
        }
    )
    record.save(shared_home)
    (reaped,) = reap(shared_home)
    assert (reaped.id, reaped.status) == (record.id, "crashed")
    with client() as server:
        state = server.read_flow_run(UUID(flow_run_id)).state
    assert state and (state.type.value, state.message) == ("CRASHED", "Its process is gone.")
    assert ended(tracked._journal.path) == "KILLED"
    assert reap(shared_home) == []


def test_prefect_is_told_later_of_what_ended_while_it_was_away(
    toy: ModuleType, shared_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record is closed already; the flow run is found by what Prefect thinks goes on."""
    with client() as server:
        runs = [str(server.create_flow_run(toy.endless_flow, state=Running()).id) for _ in "1234"]
    for status, flow_run_id in zip(("completed", "crashed", "running"), runs, strict=False):
        told = {"status": status, "flow_run_id": flow_run_id}
        RunRecord.start({"name": "mine"}, "all").model_copy(update=told).save(shared_home)
    with monkeypatch.context() as patch:
        patch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
        refresh_global_settings_context()
        reap(shared_home)  # it is away still: no error
    refresh_global_settings_context()
    reap(shared_home)
    with client() as server:
        shown = [server.read_flow_run(UUID(run)).state_type for run in runs]
    assert shown == ["COMPLETED", "CRASHED", "RUNNING", "RUNNING"]
