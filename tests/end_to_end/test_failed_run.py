"""A run with a stage that fails: what the command says of it, and what Prefect shows."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cluster.runs import RunRecord, records
from tests.prefect_api import task_runs
from tests.shell import headrace

RECIPE = """
name: spoilt
sources: [{{path: {path}}}]
read: {{max_bad_rate: 0.1}}
"""


@pytest.fixture(scope="module")
def failed(
    shared_home: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    folder = tmp_path_factory.mktemp("spoilt")
    (folder / "rows.jsonl").write_text('{"text": "a row [int]"}\nnone [/x]\nnone\n')
    (folder / "recipe.yaml").write_text(RECIPE.format(path=folder / "rows.jsonl"))
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    killed = RunRecord.start({"name": "killed"}, "data")
    killed.model_copy(update={"process": killed.process | {"pid": dead.pid}}).save(shared_home)
    done = headrace("data", str(folder / "recipe.yaml"), "--json")
    return done, json.loads(done.stdout)


def test_what_needs_a_failed_stage_is_skipped_and_says_why(
    failed: tuple[subprocess.CompletedProcess[str], dict[str, Any]],
) -> None:
    done, run = failed
    assert (done.returncode, run["status"]) == (2, "failed")
    read, *others = run["stages"]
    assert (read["name"], read["state"]) == ("read", "failed")
    assert "rows.jsonl" in read["error"] and "Traceback" not in done.stderr
    assert {(s["state"], s["why"]) for s in others} == {("skipped", "not run: read failed")}
    assert done.stderr.splitlines()[-1].startswith("error: read: ")
    assert "UnfinishedRun" not in done.stderr + done.stdout
    assert "Skipped" not in done.stderr


def test_prefect_shows_one_failure_and_what_was_not_run(
    failed: tuple[subprocess.CompletedProcess[str], dict[str, Any]],
) -> None:
    url = failed[1]["urls"]["prefect"]
    base, flow_run = url.split("/runs/")[0], url.rsplit("/", 1)[1]
    stages = {stage["name"] for stage in failed[1]["stages"]}
    shown = {name: run["state"] for name, run in task_runs(flow_run, stages, base).items()}
    assert set(shown) == stages
    assert shown.pop("read")["type"] == "FAILED"
    said = {(state["type"], state["name"], state["message"]) for state in shown.values()}
    assert said == {("CANCELLED", "Skipped", "not run: read failed")}


def test_a_run_marks_the_one_that_was_killed_before_it(
    failed: tuple[subprocess.CompletedProcess[str], dict[str, Any]], shared_home: Path
) -> None:
    (killed,) = [run for run in records(shared_home) if run.recipe["name"] == "killed"]
    assert killed.status == "crashed"
