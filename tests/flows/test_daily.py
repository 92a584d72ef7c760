"""The commands of every day, through the door: init, schema, stop, --version."""

import json
import subprocess
from importlib.metadata import version
from pathlib import Path

import yaml

from cluster.runs import RunRecord
from flows.commands.new_recipe import recipe_text
from tests import shell


def headrace(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return shell.headrace(*arguments, folder=folder, HEADRACE_HOME=str(folder / "home"))


def test_init_writes_plan_reads_and_nothing_is_asked_or_overwritten(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Water runs down to the mill.\n")
    first = headrace(tmp_path, "init", "notes.txt", "--json")
    assert first.returncode == 0, first.stderr
    reply = json.loads(first.stdout)
    assert reply["path"] == str(tmp_path / "notes.yaml")
    assert reply["next"] == "headrace run notes.yaml"
    planned = headrace(tmp_path, "plan", "notes.yaml", "--json")
    assert planned.returncode == 0, planned.stderr
    names = [stage["name"] for stage in json.loads(planned.stdout)["stages"]]
    assert names[-3:] == ["pretrain", "evaluate", "report"]
    again = headrace(tmp_path, "init", "notes.txt")
    assert again.returncode == 2 and "is there already" in again.stderr


def test_init_sees_that_a_table_has_no_header(tmp_path: Path) -> None:
    table = tmp_path / "sms.tsv"
    table.write_text("ham\tSo early, and the mill is turning already; come over\nspam\tWin\n")
    source = yaml.safe_load(recipe_text("sms.yaml", "sms", [str(table)], None))["sources"][0]
    assert source == {"path": str(table), "header": ["column_1", "column_2"], "text": "column_2"}


def test_schema_is_one_object_either_way(tmp_path: Path) -> None:
    shown, spoken = headrace(tmp_path, "schema"), headrace(tmp_path, "schema", "--json")
    assert json.loads(shown.stdout) == json.loads(spoken.stdout)
    assert "yaml-language-server" in headrace(tmp_path, "schema", "--help").stdout


def test_stop_says_what_there_is_to_stop(tmp_path: Path) -> None:
    nothing = headrace(tmp_path, "stop", "mill")
    assert nothing.returncode == 2 and "no run was recorded" in nothing.stderr
    record = RunRecord.start({"name": "mill"}, "data").model_copy(update={"status": "completed"})
    record.save(tmp_path / "home")
    ended = headrace(tmp_path, "stop", "mill", "--json")
    assert ended.returncode == 0, ended.stderr
    reply = json.loads(ended.stdout)
    assert (reply["id"], reply["done"], reply["status"]) == (record.id, "ended", "completed")
    assert "did you mean 'mill'" in headrace(tmp_path, "stop", "mull").stderr


def test_version(tmp_path: Path) -> None:
    assert headrace(tmp_path, "--version").stdout == f"headrace {version('headrace')}\n"


def test_plan_shows_variants_and_seeds(tmp_path: Path) -> None:
    said = ["--over", "model.depth=1,3", "--seeds", "2", "--one-at-a-time"]
    result = headrace(tmp_path, "plan", "smoke", *said, "--json")
    assert result.returncode == 0, result.stderr
    plan = json.loads(result.stdout)
    assert [v["label"] for v in plan["variants"]] == ["baseline", "depth=1", "depth=3"]
    assert {tuple(v["seeds"]) for v in plan["variants"]} == {(0, 1)}
    sizes = [v["params"] for v in plan["variants"]]
    assert sizes[1] < sizes[0] < sizes[2] and plan["sweep"] is None
    names = {stage["name"] for stage in plan["stages"]}
    assert {"pretrain/baseline,seed=0", "evaluate/depth=3,seed=1", "compare"} <= names
    shown = headrace(tmp_path, "plan", "smoke", *said).stdout
    assert "variants 3, 6 trainings" in shown
