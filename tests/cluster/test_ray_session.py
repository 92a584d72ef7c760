import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import httpx
import psutil
import pytest

from cluster import named_servers, ray_session, services
from cluster.processes import start_time
from tests.prefect_api import prefect_api

LISTEN = psutil.CONN_LISTEN
DRIVER = Path(__file__).with_name("toy_flow.py")


@pytest.fixture(scope="module")
def toy(shared_home: Path) -> Iterator[ModuleType]:
    """The toy flows, importable by the workers too, with the services up and Ray gone after."""
    services.up()
    folder = str(DRIVER.parent)
    sys.path.insert(0, folder)
    import toy_flow

    yield toy_flow
    ray_session.stop()
    sys.path.remove(folder)


def test_a_flow_that_submits_nothing_never_starts_ray(toy: ModuleType) -> None:
    ray_session.stop()
    assert toy.idle_flow() is False


def test_futures_pass_between_tasks_and_logs_reach_the_server(
    toy: ModuleType, shared_home: Path
) -> None:
    flow_run_id, result, environment = toy.chain_flow(1)
    assert result == 3
    assert environment["executable"] == sys.executable
    assert environment["HEADRACE_HOME"] == str(shared_home)
    assert environment["OMP_NUM_THREADS"] == "1"
    assert {"adding one to 1", "adding one to 2"} <= messages(flow_run_id, "headrace.toy")


def test_d01_ray_listens_on_the_loopback_and_tells_strangers_nothing(ray_session: None) -> None:
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    listening = [c.laddr for p in processes for c in p.net_connections("tcp") if c.status == LISTEN]
    assert len(listening) >= 3
    assert {address.ip.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}
    for address in listening:
        for path in ("/metrics", "/api/nodes", "/"):
            with contextlib.suppress(httpx.HTTPError):  # it speaks another language
                reply = httpx.get(f"http://127.0.0.1:{address.port}{path}", timeout=10)
                assert reply.status_code in (401, 403, 404, 415), (address, path, reply.text)


def living() -> Iterator[tuple[psutil.Process, list[str]]]:
    """The processes below this one, with their command lines; some end meanwhile."""
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if line := process.cmdline():
                yield process, line


def test_d04_ray_has_no_dashboard_and_the_daemons_that_it_needs(ray_session: None) -> None:
    """Each of the others imports Ray anew, at the start of every run."""
    told = dict(living())
    lines = [" ".join(line) for line in told.values()]
    assert any("raylet/raylet" in line for line in lines)
    assert not [line for line in lines if "monitor.py" in line or "dashboard.py" in line]
    (agent,) = [process for process, line in told.items() if line[0] == "ray::DashboardAgent"]
    assert not [c for c in agent.net_connections("tcp") if c.status == LISTEN]


def messages(flow_run_id: str, logger: str) -> set[str]:
    """Log lines of a flow run; they are sent every two seconds."""
    deadline, found = time.monotonic() + 20, set[str]()
    while len(found) < 2 and time.monotonic() < deadline:
        with prefect_api() as server:
            body = {"logs": {"flow_run_id": {"any_": [flow_run_id]}}}
            lines = server.post("/logs/filter", json=body).json()
        found = {line["message"] for line in lines if line["name"] == logger}
        time.sleep(0.2)
    return found


def test_a_task_whose_worker_is_killed_runs_again(toy: ModuleType, tmp_path: Path) -> None:
    assert toy.killed_worker_flow(tmp_path / "marker") == "survived"


def test_a_start_that_fails_is_tried_again_and_a_stop_leaves_no_folder(
    toy: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What SIGTERM does stays as it was, too."""
    import ray

    honest, tried = ray.init, []

    def init(**options: object) -> object:
        tried.append(options)
        if len(tried) < 3:
            raise RuntimeError("the raylet did not register in 30 seconds")
        return honest(**options)

    def end(*_: object) -> None: ...

    sessions, own = ray_session._session_folder(), f"session_*_{os.getpid()}"
    ray_session.stop()
    monkeypatch.setattr(ray, "init", init)
    before = signal.signal(signal.SIGTERM, end)
    try:
        ray_session.start()
        assert len(tried) == 3 and ray.is_initialized()
        assert signal.getsignal(signal.SIGTERM) is end
        assert named_servers.speaks_grpc(ray.get_runtime_context().gcs_address)
        assert len(list(sessions.glob(own))) == 1
    finally:
        signal.signal(signal.SIGTERM, before)
        ray_session.stop()
    assert list(sessions.glob(own)) == []


def test_killing_the_driver_takes_its_workers_down(shared_home: Path) -> None:
    """Through `uv run` where there is one, which must not change the workers' Python."""
    uv = shutil.which("uv")
    prefix = [uv, "run", "--no-project", "--python", sys.executable, "python"] if uv else None
    driver = subprocess.Popen(
        [*(prefix or [sys.executable]), str(DRIVER)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path.cwd())},
    )
    assert driver.stdout
    executable, worker, pid = driver.stdout.readline().split()
    raylets = [p for p in children(int(pid)) if "raylet" in command(p)]
    os.kill(int(pid), signal.SIGKILL)
    driver.wait()
    deadline = time.monotonic() + 60
    while any(start_time(p) for p in [int(worker), *raylets]) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert executable == sys.executable
    assert len(raylets) == 1
    assert [p for p in [int(worker), *raylets] if start_time(p)] == []


def children(pid: int) -> list[int]:
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in threads for child in path.read_text().split()]


def command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0]


def test_a_daemon_of_an_attempt_that_failed_is_none_of_the_session(tmp_path: Path) -> None:
    """It stays a zombie: the session that came up would pass for one that lost it, again and
    again.
    """
    shutil.copy(shutil.which("sleep") or "", tmp_path / "raylet")
    dead, alive = (subprocess.Popen([tmp_path / "raylet", "60"]) for _ in range(2))
    try:
        assert {dead.pid, alive.pid} <= {child.pid for child in ray_session._children()}
        os.kill(dead.pid, signal.SIGKILL)
        os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)  # dead by now, and not reaped
        found = {child.pid for child in ray_session._children()}
        assert alive.pid in found and dead.pid not in found
    finally:
        for process in (dead, alive):
            process.kill()
            process.wait()


def test_a_container_removes_no_session_of_a_process_outside() -> None:
    """It shares the temporary folder, and sees no process but its own."""
    apart = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*apart, "true"], capture_output=True).returncode:
        pytest.skip("this machine lets no user have processes apart")
    sessions = ray_session._session_folder()
    session = sessions / f"session_2026-01-01_00-00-00_000000_{os.getpid()}"
    session.mkdir(parents=True)
    clean = "from cluster import ray_session; ray_session._remove_dead_sessions()"
    subprocess.run([*apart, sys.executable, "-c", clean], check=True, timeout=300)
    assert session.is_dir()
    session.rmdir()
