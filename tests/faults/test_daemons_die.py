"""What a run needs is killed while it works: it goes on, or says what to do."""

import errno
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import psutil
import pytest
from prefect.events.worker import EventsWorker

from cluster import ray_session, services
from cluster.runs import StageRecord
from tests.prefect_api import prefect_api


@pytest.fixture(scope="module")
def toy(shared_home: Path) -> Iterator[ModuleType]:
    """The toy pipeline, importable by the workers too."""
    services.up()
    EventsWorker.reset_instances_for_fork()  # an earlier test's talks to a server that is gone
    here = str(Path(__file__).parent)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(here)
        patch.setenv("PYTHONPATH", os.pathsep.join([here, str(Path.cwd())]))
        import dying_toy

        ray_session.stop()  # one that runs already has workers without that path
        yield dying_toy
        ray_session.stop()


def run(
    toy: ModuleType,
    root: Path,
    attack: Callable[[], None],
    deadly: bool = False,
    shown: frozenset[str] = frozenset({"fill", "flow"}),
) -> tuple[dict[str, str], list[StageRecord]]:
    """Prefect's states and the records of a run whose first stage ends after the attack."""

    def when_it_digs() -> None:
        while not (root / "digging").exists():
            time.sleep(0.1)
        attack()
        (root / "go").touch()

    attacker = threading.Thread(target=when_it_digs, daemon=True)
    attacker.start()
    flow_run_id, records = toy.toy_pipeline(root, toy.Waits(folder=str(root)), deadly)
    return states(flow_run_id, shown), records


def states(flow_run_id: str, wanted: frozenset[str]) -> dict[str, str]:
    """The state of the flow run and of the last run of each task; they arrive with a delay, and
    those that are wanted are waited for.
    """
    deadline = time.monotonic() + 90
    while True:
        with prefect_api() as server:
            flow_run = server.get(f"/flow_runs/{flow_run_id}").raise_for_status().json()
            body = {"flow_runs": {"id": {"any_": [flow_run_id]}}, "sort": "EXPECTED_START_TIME_ASC"}
            tasks = server.post("/task_runs/filter", json=body).raise_for_status().json()
        found = {run["name"].partition("-")[0]: run["state_type"] for run in tasks}
        found["flow"] = flow_run["state_type"]
        ended = not {"RUNNING", "PENDING"} & set(found.values())
        if (ended and wanted <= found.keys()) or time.monotonic() > deadline:
            return found
        time.sleep(0.5)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def test_a_run_rides_through_the_death_of_prefect_and_mlflow(
    toy: ModuleType, tmp_path: Path
) -> None:
    before = {name: services._read()[name] for name in ("prefect", "mlflow")}

    def attack() -> None:
        for process in before.values():
            kill(process.pid)

    shown, records = run(toy, tmp_path, attack)
    assert [r.error or r.state for r in records] == ["built", "built"]
    # What Prefect had heard of a stage, and not written yet, has gone with it.
    assert set(shown.values()) == {"COMPLETED"} and {"fill", "flow"} <= shown.keys()
    for name, process in before.items():
        services.wait(name)
        again = services.alive(name)
        assert again and again.pid != process.pid
        assert again.url == process.url


@pytest.mark.parametrize("daemon", ["raylet", pytest.param("gcs_server", marks=pytest.mark.slow)])
def test_a_run_rides_through_the_death_of_ray(toy: ModuleType, tmp_path: Path, daemon: str) -> None:
    def attack() -> None:
        kill(next(p.pid for p in ray_session._daemons if p.name() == daemon))

    shown, records = run(toy, tmp_path, attack, shown=frozenset({"dig", "fill", "flow"}))
    assert [r.error or r.state for r in records] == ["built", "built"]
    assert shown == {"dig": "COMPLETED", "fill": "COMPLETED", "flow": "COMPLETED"}
    assert not ray_session.died()


def test_a_stage_whose_worker_is_killed_every_time_is_crashed_and_says_what_to_do(
    toy: ModuleType, tmp_path: Path
) -> None:
    wanted = frozenset({"die", "fill", "flow"})
    shown, records = run(toy, tmp_path, lambda: None, deadly=True, shown=wanted)
    assert [record.state for record in records] == ["failed", "skipped"]
    assert "its worker process died 3 times" in str(records[0].error)
    assert "the same command goes on" in str(records[0].error)
    assert shown == {"die": "CRASHED", "fill": "CANCELLED", "flow": "COMPLETED"}


def test_a_disk_that_is_full_between_stages_is_a_sentence_without_a_traceback(
    toy: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    from flows import pipeline
    from flows.commands.carrying_out import carry_out
    from flows.recipe import load

    def full(_: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/disk/runs")

    (tmp_path / "text.txt").write_text("Water runs down to the mill.")
    monkeypatch.setattr(pipeline, "reap", full)
    recipe = load("smoke", [f"sources=[{tmp_path}/text.txt]"])
    with pytest.raises(OSError, match="No space left"):  # of which the command makes the sentence
        carry_out("data", lambda: recipe, None, None, as_json=False)
    assert "/disk/runs: the disk is full; `headrace gc`" in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("daemon", ["services", "raylet", "gcs_server"])
def test_a_run_rides_through_what_is_stopped_for_a_while(
    toy: ModuleType, tmp_path: Path, daemon: str
) -> None:
    """Stopped as by Ctrl-Z or a suspended machine, and continued: the same processes serve on."""
    stopped = list[int]()

    def attack() -> None:
        ours = [services._read()[name].pid for name in ("prefect", "mlflow")]
        theirs = [p.pid for p in ray_session._daemons if p.name() == daemon]
        stopped.extend(ours if daemon == "services" else theirs)
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
            threading.Timer(3.0, os.kill, (pid, signal.SIGCONT)).start()

    shown, records = run(toy, tmp_path, attack, shown=frozenset({"dig", "fill", "flow"}))
    assert [r.error or r.state for r in records] == ["built", "built"]
    assert shown == {"dig": "COMPLETED", "fill": "COMPLETED", "flow": "COMPLETED"}
    assert stopped and all(psutil.pid_exists(pid) for pid in stopped)
    assert not ray_session.died()
