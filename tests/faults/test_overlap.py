"""Two runs that want the same, and one that is cancelled in Prefect's UI."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import flows.pipeline
from cluster import ray_session, services
from cluster.placement import Placement
from cluster.runs import records
from cluster.store import Store
from flows.plan.dag import Dag
from flows.recipe import load
from tests.prefect_api import prefect_api

SET = "tokenizer.vocab_size=600"
HERE = str(Path(__file__).parent)
OTHER = "import sys, pathlib, dying_toy as t; p = pathlib.Path(sys.argv[1]); "
OTHER += "t.toy_pipeline(p, t.Waits(folder=str(p)), False)"


@pytest.fixture(scope="module")
def toy(shared_home: Path) -> Iterator[ModuleType]:
    """The toy pipeline, importable by the workers too; Ray comes with the first task."""
    services.up()
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(HERE)
        patch.setenv("PYTHONPATH", os.pathsep.join([HERE, str(Path.cwd())]))
        import dying_toy

        ray_session.stop()
        yield dying_toy
        ray_session.stop()


def wait_for(found: Callable[[], Any], seconds: float = 300.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (it := found()):
        assert time.monotonic() < deadline, f"{found} in vain"
        time.sleep(0.1)
    return it


def waiting(name: str) -> list[dict[str, Any]]:
    """The task runs of this name that Prefect shows as waiting."""
    wanted = {"name": {"any_": [name]}, "state": {"name": {"any_": ["Waiting"]}}}
    with prefect_api() as server:
        return server.post("/task_runs/filter", json={"task_runs": wanted}).json()


def test_a_run_that_waits_for_another_holds_nothing(toy: ModuleType, tmp_path: Path) -> None:
    import ray

    ray_session.stop()
    seen = []

    def when_both_are_there() -> None:
        seen.append(wait_for(lambda: waiting("dig"))[0]["state"]["message"])
        seen.append(ray.is_initialized())
        (tmp_path / "go").touch()

    other = subprocess.Popen([sys.executable, "-c", OTHER, str(tmp_path)])
    digging = tmp_path / "digging"
    wait_for(digging.exists)
    threading.Thread(target=when_both_are_there, daemon=True).start()
    _, (dig, fill) = toy.toy_pipeline(tmp_path, toy.Waits(folder=str(tmp_path)), False)
    assert other.wait(300) == 0
    message, had_ray = seen
    assert f"process {digging.read_text()} on" in message and not had_ray
    assert (dig.state, dig.why) == ("cached", "built by another run meanwhile")
    assert fill.state in ("cached", "built")
    assert not waiting("dig") and not waiting("fill")


def test_a_run_that_is_cancelled_in_the_ui_ends(
    toy: ModuleType, shared_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan(*_: object) -> Dag:
        dag = Dag("toy", Store())
        dag.add(toy.fill, ditch=dag.add(toy.dig, settings=wanted), settings=wanted)
        return dag

    def cancel() -> None:
        """As the button of the UI does."""
        wait_for((tmp_path / "digging").exists)
        flow_run = records(shared_home)[-1].flow_run_id
        state = {"state": {"type": "CANCELLING", "name": "Cancelling"}}
        with prefect_api() as server:
            server.post(f"/flow_runs/{flow_run}/set_state", json=state).raise_for_status()

    wanted = toy.Waits(folder=str(tmp_path))
    monkeypatch.setattr(flows.pipeline, "plan_of_run", plan)
    threading.Thread(target=cancel, daemon=True).start()
    recipe = load("smoke").model_copy(update={"placement": Placement()})
    state: Any = flows.pipeline.pipeline(recipe, overrides=[SET], return_state=True)
    assert (state.type.value, "the same command goes on" in state.message) == ("CANCELLED", True)
    with prefect_api() as server:
        told = server.get(f"/flow_runs/{state.state_details.flow_run_id}").json()
    assert (told["state_type"], told["name"]) == ("CANCELLED", f"smoke-all-{SET}")
    record = records(shared_home)[-1]
    assert (record.status, record.stages) == ("crashed", [])
    assert record.recipe["tokenizer"]["vocab_size"] == 600
    pid = int((tmp_path / "digging").read_text())
    wait_for(lambda: not Path(f"/proc/{pid}").exists())


def test_a_run_that_is_tried_again_is_one_run(
    toy: ModuleType, shared_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan(*_: object) -> Dag:
        dag = Dag("toy", Store())
        dag.add(toy.refuse, settings=toy.Waits(folder=str(tmp_path)))
        return dag

    monkeypatch.setattr(flows.pipeline, "plan_of_run", plan)
    again: Any = flows.pipeline.pipeline.with_options(retries=1, retry_delay_seconds=0)
    state = again(load("smoke"), return_state=True)
    assert state.type.value == "FAILED" and "refuse: hard rock" in state.message
    flow_run = str(state.state_details.flow_run_id)
    with prefect_api() as server:
        assert server.get(f"/flow_runs/{flow_run}").json()["run_count"] == 2
    (record,) = [record for record in records(shared_home) if record.flow_run_id == flow_run]
    assert record.status == "failed"
