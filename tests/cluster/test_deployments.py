import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from prefect.client.schemas.actions import DeploymentUpdate, WorkPoolUpdate
from prefect.client.schemas.objects import FlowRun
from prefect.context import refresh_global_settings_context
from prefect.exceptions import ObjectNotFound
from prefect.states import Running, Scheduled
from prefect.workers.process import ProcessJobConfiguration

from cluster import automations, deployments, services
from cluster.deployments import Deployed, Schedule, create_work_pool, deploy, record
from cluster.mlflow_tracking import PipelineRun
from cluster.prefect_server import client
from cluster.prefect_worker import OwnRun
from cluster.reaper import reap
from cluster.runs import RunRecord
from cluster.tracking import ended
from tests.prefect_api import prefect_api

HERE = str(Path(__file__).parent)
ENDS = ("COMPLETED", "FAILED", "CANCELLED", "CRASHED")
NIGHTLY = Schedule(cron="0 3 * * *")


@pytest.fixture
def toy(shared_home: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The toy flows, where the processes of the worker find them too."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([HERE, str(Path.cwd())]))
    monkeypatch.syspath_prepend(HERE)
    services.up()
    import toy_flow

    return toy_flow


@pytest.fixture
def every_20_seconds(toy: ModuleType) -> Iterator[str]:
    """A schedule by which a run starts after the one before; were its deployment to stay, its runs
    would slow all tests that follow.
    """
    yield "* * * * * */20"
    with client() as server, contextlib.suppress(ObjectNotFound):
        server.delete_deployment(server.read_deployment_by_name("toy-scheduled/toy").id)


def wait_for(path: Path, seconds: float = 120.0) -> str:
    deadline = time.monotonic() + seconds
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.2)
    return path.read_text()


def tamper(deployment: str, command: str) -> None:
    """Ask for what who has the server's password can have Prefect's own worker do."""
    hostile = DeploymentUpdate(
        job_variables={"command": command, "working_dir": "/", "env": {"PYTHONPATH": "/no"}},
        entrypoint="os.system",
        pull_steps=[{"prefect.deployments.steps.run_shell_script": {"script": command}}],
    )
    with client() as server:
        server.update_deployment(server.read_deployment_by_name(deployment).id, hostile)


def test_what_a_scheduled_run_does_is_not_the_servers_to_say(
    toy: ModuleType,
    shared_home: Path,
    every_20_seconds: str,
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
        schedule=Schedule(cron=every_20_seconds),
        parameters=marked,
    )
    assert soon["deployment"] == "toy-scheduled/toy"
    tamper("toy-scheduled/toy", f"touch {tmp_path / 'planted'}")
    assert wait_for(shared_home / "scheduled-mark") == f"{sys.executable} in {Path.cwd()}"
    assert not (tmp_path / "planted").exists()
    worker = services.alive("worker")
    nightly = deploy(
        toy.scheduled_flow,
        entrypoint=entrypoint,
        name="toy",
        schedule=NIGHTLY,
        parameters=marked,
    )
    assert "T03:00:00" in nightly["next_run"]
    assert services.alive("worker") == worker
    os.killpg(worker.pid, signal.SIGKILL)
    while services.alive("worker") == worker:
        time.sleep(0.05)
    services.up()  # who looks after the services of this process may have been quicker
    assert services.alive("worker") is not None


def test_the_next_run_is_of_the_new_schedule_though_one_of_the_old_is_late(
    toy: ModuleType,
) -> None:
    def next_run(cron: str) -> str:
        made = deploy(
            toy.scheduled_flow,
            entrypoint="toy_flow.scheduled_flow",
            name="toy",
            schedule=Schedule(cron=cron),
            parameters={"mark": "late-mark"},
        )
        return made["next_run"]

    with client() as server:
        create_work_pool("process")
        server.update_work_pool(services.WORK_POOL, WorkPoolUpdate(is_paused=True))
        try:  # nobody takes the run that is late
            assert "T03:00:00" in next_run("0 3 * * *")
            late = Scheduled(scheduled_time=datetime.now(UTC) - timedelta(minutes=5))
            made = server.read_deployment_by_name("toy-scheduled/toy").id
            server.create_flow_run_from_deployment(made, state=late)
            assert "T04:00:00" in next_run("0 4 * * *")
            server.delete_deployment(made)
        finally:
            server.update_work_pool(services.WORK_POOL, WorkPoolUpdate(is_paused=False))


def test_a_deployment_that_headrace_did_not_make_runs_nothing(
    toy: ModuleType, tmp_path: Path
) -> None:
    deploy(toy.scheduled_flow, entrypoint="toy_flow.scheduled_flow", name="own", schedule=NIGHTLY)
    with prefect_api() as server:
        flow = server.post("/flows/", json={"name": "theirs"}).json()["id"]
        command = {"command": f"touch {tmp_path / 'planted'}"}
        body = {"name": "x", "flow_id": flow, "entrypoint": "x", "work_pool_name": "headrace"}
        theirs = server.post("/deployments/", json=body | {"job_variables": command}).json()["id"]
        began = {"state": {"type": "SCHEDULED"}}
        run = server.post(f"/deployments/{theirs}/create_flow_run", json=began).json()["id"]
        deadline = time.monotonic() + 120
        while (state := server.get(f"/flow_runs/{run}").json()["state"])["type"] != "CRASHED":
            assert time.monotonic() < deadline and state["type"] != "COMPLETED", state
            time.sleep(0.3)
    assert "was not made in" in state["message"] and "headrace deploy" in state["message"]
    assert not (tmp_path / "planted").exists()


def test_a_run_is_started_as_it_was_deployed(fresh_home: Path) -> None:
    hostile = ProcessJobConfiguration(
        command="touch x", env={"LD_PRELOAD": "x"}, working_dir=Path("/")
    )
    run = FlowRun(flow_id=uuid4(), deployment_id=uuid4(), name="x")
    carried_out = hostile.model_copy(deep=True)
    carried_out.prepare_for_flow_run(run)
    assert (carried_out.command, carried_out.env["LD_PRELOAD"]) == ("touch x", "x")
    ours = Deployed(entrypoint="a.b", variables={"HF_HOME": "c"}, folder=fresh_home)
    record(str(run.deployment_id)).write_text(ours.model_dump_json())
    confined = OwnRun(**hostile.model_dump())
    confined.prepare_for_flow_run(run)
    assert confined.command == f"{sys.executable} -m prefect.engine"
    assert confined.working_dir == fresh_home
    assert confined.env["PREFECT__FLOW_ENTRYPOINT"] == "a.b"
    assert confined.env["HF_HOME"] == "c" and "LD_PRELOAD" not in confined.env


@pytest.mark.parametrize(
    "name", ["HEADRACE_JUDGE_API_KEY", "HEADRACE_REDACT_KEY", "PREFECT_CLIENT_CUSTOM_HEADERS"]
)
def test_a_deployment_tells_no_secret(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "a secret value")
    assert "a secret value" not in deployments._variables().values()


@pytest.fixture
def told() -> Iterator[tuple[str, list[str]]]:
    """The URL of a webhook, and what is posted to it."""
    heard: list[str] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            heard.append(json.loads(body)["text"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Hook) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/secret-of-the-hook", heard
        server.shutdown()


def is_told(heard: list[str], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not heard and time.monotonic() < deadline:
        time.sleep(0.2)
    return bool(heard)


def start(server: httpx.Client, deployment: str) -> str:
    """Run a deployment now; the id of its flow run."""
    found = server.get(f"/deployments/name/{deployment}").json()["id"]
    state = {"state": {"type": "SCHEDULED"}}
    return server.post(f"/deployments/{found}/create_flow_run", json=state).json()["id"]


def ended_as(server: httpx.Client, flow_run: str, seconds: float = 240.0) -> dict[str, Any]:
    deadline = time.monotonic() + seconds
    while (run := server.get(f"/flow_runs/{flow_run}").json())["state_type"] not in ENDS:
        assert time.monotonic() < deadline, run["state"]
        time.sleep(0.3)
    return run


AGAIN = {"cron": "0 3 * * *", "retries": 1, "retry_seconds": 0, "tags": ("nightly",)}


def test_a_run_that_fails_is_tried_again(toy: ModuleType, told: tuple[str, list[str]]) -> None:
    again = Schedule(**AGAIN, notify=told[0])
    deploy(toy.failing_flow, entrypoint="toy_flow.failing_flow", name="f", schedule=again)
    with prefect_api() as server:
        assert "secret-of-the-hook" not in server.post("/block_documents/filter", json={}).text
        run = ended_as(server, start(server, "toy-failing/f"))
    assert (run["state_type"], run["run_count"], run["tags"]) == ("FAILED", 2, ["nightly"])


@pytest.mark.slow
def test_a_run_that_fails_is_told_of(toy: ModuleType, told: tuple[str, list[str]]) -> None:
    """Prefect on SQLite loses events where its database is busy, so that word may not come."""
    url, heard = told
    deploy(
        toy.failing_flow,
        entrypoint="toy_flow.failing_flow",
        name="told",
        schedule=Schedule(**AGAIN, notify=url),
    )
    with prefect_api() as server:
        run = ended_as(server, start(server, "toy-failing/told"))
    assert is_told(heard, seconds=60.0)
    assert len(heard) == 1 and "out of order" in heard[0] and run["name"] in heard[0]


def test_a_deployed_run_that_is_cancelled_ends(toy: ModuleType, shared_home: Path) -> None:
    lasting, mark = "toy_flow.lasting_flow", {"mark": "cancelled"}
    deploy(toy.lasting_flow, entrypoint=lasting, name="c", schedule=NIGHTLY, parameters=mark)
    cancelling = {"state": {"type": "CANCELLING", "name": "Cancelling"}}
    with prefect_api() as server:
        flow_run = start(server, "toy-lasting/c")
        pid = int(wait_for(shared_home / "cancelled"))
        server.post(f"/flow_runs/{flow_run}/set_state", json=cancelling).raise_for_status()
        assert ended_as(server, flow_run)["state_type"] == "CANCELLED"
    assert not Path(f"/proc/{pid}").exists()


def test_a_run_that_is_gone_with_its_worker_is_marked_by_the_server(
    toy: ModuleType, shared_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(automations, "SILENCE", timedelta(seconds=10))
    mark = {"mark": "ghost"}
    deploy(
        toy.lasting_flow,
        entrypoint="toy_flow.lasting_flow",
        name="ghost",
        schedule=NIGHTLY,
        parameters=mark,
    )
    with prefect_api() as server:
        flow_run = start(server, "toy-lasting/ghost")
        pid = int(wait_for(shared_home / "ghost"))
        worker = services.alive("worker")
        assert worker
        os.kill(worker.pid, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)
        run = ended_as(server, flow_run)
    assert run["state_type"] == "CRASHED" and "Nothing was heard of it" in run["state"]["message"]
    services.up()


def test_a_killed_run_is_marked_everywhere(toy: ModuleType, shared_home: Path) -> None:
    code = "import toy_flow; toy_flow.endless_flow('endless-mark')"
    driver = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    flow_run_id = wait_for(shared_home / "endless-mark")
    driver.kill()
    driver.wait()
    tracked = PipelineRun.start("mine", "killed-run", {}, {"prefect.flow_run_id": flow_run_id})
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
    assert ended(tracked.tracker.path) == "KILLED"
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
