"""The command line: light to start, exact in what it prints, honest in its exit status."""

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster import services
from cluster.errors import StageFailed
from cluster.runs import RunRecord, StageRecord
from cluster.settings import Settings
from cluster.stage import build, stage
from cluster.store import Draft, Store
from tests import shell

HEAVY = {"torch", "deepspeed", "ray", "prefect", "mlflow", "transformers", "matplotlib", "scipy"}


class Text(Settings):
    text: str = "water"


@stage(version=1)
def pour(settings: Text, draft: Draft) -> None:
    (draft.path / "data.txt").write_text(settings.text)


def headrace(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return shell.headrace(*arguments, HEADRACE_HOME=str(home), COLUMNS="200")


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["ls"], ["run", "--help"], ["show", "gpt2-xl"], ["status"], ["schema"]],
)
def test_quick_commands_import_nothing_heavy(tmp_path: Path, arguments: list[str]) -> None:
    code = (
        "import sys, json\n"
        "from flows.cli import app\n"
        f"try: app({arguments!r}, standalone_mode=False)\n"
        "finally: print(json.dumps(sorted(sys.modules)), file=sys.stderr)\n"
    )
    environment = os.environ | {"HEADRACE_HOME": str(tmp_path)}
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr[-2000:]
    modules = set(json.loads(result.stderr.splitlines()[-1]))
    assert not modules & HEAVY


def test_every_command_has_help() -> None:
    from typer.main import get_command

    from flows.cli import app

    commands = get_command(app).commands  # type: ignore[attr-defined]
    assert {"run", "plan", "data", "pretrain", "sweep", "generate", "up", "down", "status"} <= set(
        commands
    )
    assert {"deploy", "ls", "show", "lineage", "verify", "gc"} <= set(commands)
    assert all(command.help for command in commands.values())


def test_store_commands_speak_json(tmp_path: Path) -> None:
    made = build(pour, Store(tmp_path), recipe="mill", settings=Text())
    listed = json.loads(headrace(tmp_path, "ls", "--json").stdout)
    assert [a["artifact"] for a in listed["artifacts"]] == [made.name]
    shown = json.loads(headrace(tmp_path, "show", "pour", "--json").stdout)
    assert shown["fingerprint"] == made.fingerprint
    graph = json.loads(headrace(tmp_path, "lineage", "pour", "--json").stdout)
    assert [n["id"] for n in graph["nodes"]] == [made.name] and graph["edges"] == []


def test_verify_finds_damage_names_it_and_exits_with_2(tmp_path: Path) -> None:
    made = build(pour, Store(tmp_path), recipe="mill", settings=Text())
    assert json.loads(headrace(tmp_path, "verify", "--json").stdout)["ok"] is True
    (made.path / "data.txt").write_text("waxer")
    result = headrace(tmp_path, "verify", "--json")
    assert result.returncode == 2
    report = json.loads(result.stdout)
    assert report["ok"] is False and "data.txt" in report["bad"][made.name][0]
    assert "--rebuild pour" in result.stderr


def test_gc_keeps_manifests_and_reports_what_it_frees(tmp_path: Path) -> None:
    made = build(pour, Store(tmp_path), recipe="mill", settings=Text())
    dry = json.loads(headrace(tmp_path, "gc", "--dry-run", "--json").stdout)
    assert dry["freed_bytes"] > 0 and made.path.exists()
    wet = json.loads(headrace(tmp_path, "gc", "--json").stdout)
    assert wet["freed_bytes"] == dry["freed_bytes"] and not made.path.exists()
    assert (tmp_path / "manifests" / "pour" / f"{made.path.name}.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "quikstart"], "did you mean 'quickstart'"),
        (["run", "smoke", "--set", "modle.depth=3"], "did you mean 'model'"),
        (["show", "nothing"], "headrace ls"),
        (["run", "--no-such-flag"], "No such option"),
        (["fit", "missing.csv"], "missing.csv"),
    ],
)
def test_bad_input_exits_with_2_and_says_what_to_do(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    result = headrace(tmp_path, *arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_a_failing_command_still_prints_one_object(tmp_path: Path) -> None:
    result = headrace(tmp_path, "run", "quikstart", "--json")
    assert result.returncode == 2
    reply = json.loads(result.stdout)
    assert reply["status"] == "failed" and "quickstart" in reply["error"]


@pytest.mark.parametrize(
    ("status", "error", "words"),
    [
        ("crashed", RuntimeError(), "the flow run ended in state Crashed: gone"),
        ("running", OSError(28, "full"), "the run ended between its stages: the disk is full"),
    ],
)
def test_a_run_that_crashes_between_its_stages_has_failed(
    status: str,
    error: Exception,
    words: str,
    fresh_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Its record may say yet that it runs: a full disk took no other."""
    from flows import pipeline
    from flows.commands.carrying_out import carry_out
    from flows.recipe import load
    from flows.views import progress

    record = RunRecord.start({"name": "smoke"}, "data")
    crashed = {"flow_run_id": "of it", "status": status}
    record.model_copy(update=crashed).save(fresh_home)
    state = SimpleNamespace(
        name="Crashed",
        message="gone",
        state_details=SimpleNamespace(flow_run_id="of it"),
        is_failed=lambda: True,
        result=lambda raise_on_failure: error,
    )
    monkeypatch.setattr(services, "up", lambda: None)
    monkeypatch.setattr(progress, "watch", lambda *_: nullcontext())
    monkeypatch.setattr(pipeline, "pipeline", lambda *_, **__: state)
    with pytest.raises(StageFailed, match=words):
        carry_out("data", lambda: load("smoke"), None, None, as_json=True)
    reply = json.loads(capfd.readouterr().out)
    assert (reply["status"], reply["stages"]) == ("failed", [])
    assert words in reply["error"]


def test_plan_states_reasons_and_numbers_without_training(tmp_path: Path) -> None:
    result = headrace(tmp_path, "plan", "smoke", "--json")
    assert result.returncode == 0, result.stderr
    plan = json.loads(result.stdout)
    keys = {"stages", "params", "tokens", "flops", "bytes_per_device", "seconds", "cost"}
    assert keys <= set(plan)
    assert {stage["why"] for stage in plan["stages"]} == {"first build"}
    assert plan["flops"] > 6 * plan["params"]
    assert not (tmp_path / "artifacts").exists()


def test_a_cluster_that_is_away_is_told_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    result = headrace(tmp_path, "data", "smoke")
    assert result.returncode == 2 and "RAY_ADDRESS is 127.0.0.1:9" in result.stderr
    assert not (tmp_path / "services.json").exists()


WARNS = """
import logging
import anyio
from flows import cli

class Full:
    async def create_logs(self, items):
        raise OSError("507, for the disk is full")

def work():
    from cluster.environment import prepare
    prepare()
    from prefect.logging.configuration import setup_logging
    from prefect.logging.handlers import APILogWorker
    setup_logging()
    worker = object.__new__(APILogWorker)
    worker._client = Full()
    anyio.run(worker._handle_batch, [])
    logging.getLogger("headrace.run").warning("sweep is left out")
    return 0

cli._guarded = work
cli.main()
"""


def test_a_warning_is_said_once_on_a_line_of_its_own(tmp_path: Path) -> None:
    """Prefect shows what loggers warn of as well, and what its server does not take of it."""
    environment = {**os.environ, "HEADRACE_HOME": str(tmp_path)}
    command = [sys.executable, "-c", WARNS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == "sweep is left out\n"


def test_a_run_is_planned_once(
    tmp_path: Path, fresh_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows import pipeline
    from flows.commands.carrying_out import carry_out
    from flows.plan import at_hand
    from flows.recipe import load

    plans, honest = [], at_hand.plan
    monkeypatch.setattr(at_hand, "plan", lambda *a: plans.append(honest(*a)) or plans[-1])

    def flow(recipe: Any, goal: str, rebuild: Any, *_: object, **__: object) -> None:
        assert at_hand.plan_of_run(goal, recipe, rebuild) is plans[0]
        raise StageFailed("seen")

    monkeypatch.setattr(services, "up", lambda: None)
    monkeypatch.setattr(pipeline, "pipeline", flow)
    (tmp_path / "text.txt").write_text("Water runs down to the mill.")
    given = [f"sources=[{tmp_path}/text.txt]"]
    with pytest.raises(StageFailed, match="seen"):
        carry_out("data", lambda: load("smoke", given), given, None, as_json=False)
    assert len(plans) == 1


def test_the_table_of_a_run_fits_80_columns_and_paths_stand_below_it(
    fresh_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from flows.views.output import Output
    from flows.views.run_outcome import show_run

    monkeypatch.setenv("COLUMNS", "80")
    name, folder = "pretrain/depth=2,seed=0", "artifacts/pretrain/mill-depth=2,seed=0-0123abcd"
    one = StageRecord(
        name=name, stage="pretrain", fingerprint="", state="built", why="its shards changed " * 9,
        seconds=100, artifact=str(fresh_home / folder),
    )  # fmt: skip
    record = RunRecord.start({"name": "mill"}, "all").model_copy(
        update={"stages": [one], "metrics": {"bits_per_byte": 1.78172, "pretrain.seconds": 7.0}}
    )
    show_run(Output(as_json=False), record.model_dump(mode="json", by_alias=True))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["stage", "state", "time", "why"]
    assert lines[1].split()[:5] == [name, "built", "1", "min", "40"]
    assert "bits_per_byte  1.782" in [line.strip() for line in lines]
    assert f"  {folder}" in lines
    assert all(len(line) <= 80 for line in lines if not line.startswith("below "))
