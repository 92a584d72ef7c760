"""Two deployments of the same recipe, every minute, unattended; what they need is killed.

uv run pytest -m slow -s tests/end_to_end/test_schedule.py
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from cluster.processes import Process
from tests.prefect_api import prefect_api

NAMES = ("mill", "twin")
SMALL = [f"{name}=null" for name in ("sweep", "classify", "instruct")]
PATIENCE = 1500.0
GOING_ON = {"PENDING", "RUNNING"}


@pytest.fixture
def unattended(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home whose services nobody looks after but themselves."""
    folder = Path(tempfile.mkdtemp(prefix="hr-"))
    monkeypatch.setenv("HEADRACE_HOME", str(folder))
    for name in [name for name in os.environ if name.startswith(("PREFECT_", "MLFLOW_"))]:
        monkeypatch.delenv(name)
    yield folder
    headrace("down", "--force")
    shutil.rmtree(folder, ignore_errors=True)


def headrace(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "flows.cli", *arguments, "--json"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    return json.loads(told.stdout)


def service(home: Path, name: str) -> Process:
    return Process.model_validate(json.loads((home / "services.json").read_text())[name])


def kill(home: Path, name: str) -> float:
    """Kill a service; the seconds until it is there again, without anybody's doing."""
    before, began = service(home, name), time.monotonic()
    os.kill(before.pid, signal.SIGKILL)
    while (now := service(home, name)).pid == before.pid or not now.alive:
        assert time.monotonic() < began + 120, f"{name} does not come back"
        time.sleep(0.1)
    return time.monotonic() - began


def scheduled(server: httpx.Client) -> list[dict[str, Any]]:
    """The runs that a schedule asked for, of both deployments, and that were begun."""
    wanted = {"state": {"type": {"not_any_": ["SCHEDULED"]}}, "tags": {"all_": ["minutely"]}}
    return server.post("/flow_runs/filter", json={"flow_runs": wanted}).raise_for_status().json()


def side_by_side(runs: list[dict[str, Any]]) -> int:
    """How many runs of one deployment go on at once, at most."""
    going = Counter(run["deployment_id"] for run in runs if run["state_type"] in GOING_ON)
    return max(going.values(), default=0)


def overlapped(runs: list[dict[str, Any]]) -> bool:
    """Whether a run of the one deployment began while one of the other went on."""
    spans = [(run["deployment_id"], run["start_time"], run["end_time"]) for run in runs]
    return any(
        one != other and begin < start < end
        for one, begin, end in spans
        if end
        for other, start, _ in spans
        if start
    )


def shared(home: Path) -> list[str]:
    """The stages that a run waited for and found built by another."""
    records = [json.loads(path.read_text()) for path in (home / "runs").glob("*.json")]
    stages = [stage for record in records for stage in record["stages"]]
    return [stage["name"] for stage in stages if stage["why"].startswith("built by another")]


@pytest.mark.slow
def test_deployments_fire_unattended_and_outlive_their_worker_and_server(unattended: Path) -> None:
    settings = [part for setting in SMALL for part in ("--set", setting)]
    for name in NAMES:
        asked = ["--cron", "* * * * *", "--tag", "minutely", "--set", f"name={name}"]
        headrace("deploy", "smoke", *asked, *settings)
    began, most = time.monotonic(), 0
    away: dict[str, float] = {}
    runs: list[dict[str, Any]] = []
    with prefect_api(service(unattended, "prefect").url) as server:
        while True:
            assert time.monotonic() < began + PATIENCE, Counter(r["state_name"] for r in runs)
            try:
                runs = scheduled(server)
            except httpx.HTTPError:
                continue
            most = max(most, side_by_side(runs))
            ended = Counter(r["name"][:4] for r in runs if r["state_type"] == "COMPLETED")
            if any(run["state_type"] == "RUNNING" for run in runs) and not away:
                away = {name: kill(unattended, name) for name in ("worker", "prefect")}
            if all(ended[name] >= 2 for name in NAMES):
                break
            time.sleep(0.5)
    print(f"{time.monotonic() - began:.0f} s: {dict(ended)} ended, {most} at once of one")
    print(f"of others: {shared(unattended)}; back by themselves after seconds: {away}")
    print(Counter(run["state_name"] for run in runs))
    assert most == 1
    assert not {run["state_type"] for run in runs} & {"FAILED", "CRASHED", "CANCELLED"}
    assert overlapped(runs), "the two never went on at once"
