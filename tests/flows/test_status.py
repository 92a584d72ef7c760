"""`headrace status`: services, runs that go on with their pace, those that ended; `logs -f`."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cluster.live import Pulse
from cluster.runs import RunRecord
from cluster.settings import Settings
from cluster.stage import stage
from cluster.store import Draft, Spec, Store
from flows.cli import app
from flows.views.going_on import runs, words

SPEC = Spec("pretrain", 1, "mill", {}, {})


@pytest.fixture
def going_on(fresh_home: Path) -> RunRecord:
    """A run of this very process, whose training is at step 200 of 1,400 after ten seconds."""
    fresh_home.mkdir(mode=0o700)
    record = RunRecord.start({"name": "mill"}, "all")
    record.model_copy(update={"planned": {"seconds": 600.0}}).save(fresh_home)
    pulse = Pulse(fresh_home, record.id, 23)
    pulse._due = 0.0
    pulse.beat([("pretrain", "pretrain", SPEC.fingerprint)], ["trunk/d16"], 6)
    return record


def progress(home: Path, **told: Any) -> None:
    scratch = Store(home).scratch(SPEC)
    scratch.mkdir(parents=True, exist_ok=True)
    (scratch / "progress.json").write_text(json.dumps(told))


def test_a_run_is_listed_with_its_stage_rate_and_time_left(
    going_on: RunRecord, fresh_home: Path
) -> None:
    began = {"began": time.time() - 10, "from": 100.0}
    progress(fresh_home, done=200, total=1400, unit="steps", loss=2.3124, **began)
    (run,) = json.loads(CliRunner().invoke(app, ["status", "--json"]).stdout)["runs"]
    assert (run["id"], run["status"], run["done"], run["total"]) == (
        going_on.id, "running", 6, 23,
    )  # fmt: skip
    (found,) = run["stages"]
    assert found["per_second"] == pytest.approx(10, rel=0.05)
    assert found["seconds_left"] == pytest.approx(120, rel=0.05)
    assert 590 < run["seconds_left"] <= 600 and run["waiting"] == ["trunk/d16"]
    said = CliRunner().invoke(app, ["status"]).stdout
    assert "200 of 1.4k steps, 10" in said and "loss 2.31, about 2 min" in said
    assert "6 of 23 stages" in said and "waits for another run: trunk/d16" in said


def test_a_stage_that_says_nothing_is_under_way(going_on: RunRecord, fresh_home: Path) -> None:
    (run,) = runs(fresh_home)
    assert words(run["stages"][0]).startswith("under way for 0.")
    progress(fresh_home, done="?")
    assert words(runs(fresh_home)[0]["stages"][0]).startswith("under way for ")


def test_runs_that_ended_or_were_killed_come_after(going_on: RunRecord, fresh_home: Path) -> None:
    for number, (status, update) in enumerate(
        (("completed", {}), ("running", {"process": {"host": "", "pid": 1}}))
    ):
        other = going_on.model_copy(update={"id": f"mill-{number}", "status": status, **update})
        other.save(fresh_home)
    killed = going_on.model_copy(update={"id": "mill-2", "process": {**going_on.process, "pid": 0}})
    killed.save(fresh_home)
    found = {run["id"]: run["status"] for run in runs(fresh_home)}
    assert found.pop("mill-1") == "running"  # on another host, of which nothing is known
    assert found == {going_on.id: "running", "mill-0": "completed", "mill-2": "killed"}


class Nothing(Settings):
    pass


@stage(version=1, name="pretrain")
def train(settings: Nothing, draft: Draft) -> None:
    pass


def test_what_a_draft_tells_of_its_progress_has_its_pace(fresh_home: Path) -> None:
    store = Store(fresh_home)
    with store.writer(SPEC), store.draft(SPEC) as draft:
        for done, unit in ((300, "steps"), (500, "steps"), (1, "rows")):
            draft._last_progress = 0.0
            draft.progress(done, 1000, unit)
            told = json.loads((draft.scratch / "progress.json").read_text())
            assert told["from"] == (300 if unit == "steps" else 1)  # a new phase begins anew


def test_it_takes_no_heavy_import(fresh_home: Path) -> None:
    code = (
        "import sys; from flows.cli import main; sys.argv = ['headrace', 'status', '--json']\n"
        "try: main()\nexcept SystemExit: pass\n"
        "heavy = {'ray', 'prefect', 'mlflow', 'torch', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
