"""The whole pipeline on the smoke recipe with real Prefect, Ray, MLflow and DeepSpeed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cluster import mlflow_tracking
from tests import shell
from tests.end_to_end.spoilt import spoil
from tests.prefect_api import prefect_api, task_runs

HEADRACE = [str(Path(sys.executable).with_name("headrace"))]
STAGES = ["read", "filter", "dedup", "redact", "tokenizer", "shards", "pretrain", "evaluate"]
STAGES += [
    "classify",
    "instruct",
    "answers",
    "judge",
    "exam",
    "trunk",
    "sweep",
    "fit",
    "forecast",
    "report",
]


def started(*arguments: str, folder: Path | None = None) -> dict[str, Any]:
    """What a command says that runs the pipeline, in a process of its own."""
    command = [*HEADRACE, *arguments, "--json"]
    return said(subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600))


def headrace(*arguments: str) -> dict[str, Any]:
    """What a command says that looks at what was made."""
    return said(shell.headrace(*arguments, "--json"))


def said(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr[-4000:]
    value: dict[str, Any] = json.loads(done.stdout)
    return value


def states(run: dict[str, Any]) -> dict[str, str]:
    return {stage["name"]: stage["state"] for stage in run["stages"]}


def record(run: str) -> dict[str, Any]:
    path = Path(os.environ["HEADRACE_HOME"]) / "runs" / f"{run}.json"
    value: dict[str, Any] = json.loads(path.read_text())
    return value


# Time to be disturbed in.
LONGER = ["--set", "pretrain.tokens=200_000", "--set", "placement.checkpoint_seconds=0.1"]
ENDINGS = {signal.SIGINT: (130, "interrupted"), signal.SIGTERM: (143, "ended by SIGTERM")}
EXAM = "name: modules\nkind: choice\nrows: rows.jsonl\n"
ROWS = [{"question": f"import {n}", "choices": [f"{n}.path", "zebra"], "answer": 0} for n in "ab"]


@pytest.fixture(scope="module")
def exam(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exam")
    (folder / "modules.yaml").write_text(EXAM)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return folder / "modules.yaml"


@pytest.fixture(scope="module")
def first_run(
    shared_home: Path, exam: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """Run where a user's own `tasks/`, `model.py` and such lie: Headrace's code is found first, by
    the driver, Ray's workers, and the processes that train.
    """
    beside = spoil(tmp_path_factory.mktemp("beside"))
    run = started("run", "smoke", "--set", f"evaluate.exams=[{exam}]", folder=beside)
    with pytest.MonkeyPatch.context() as patch:
        # On a busy machine MLflow, which gives way to all others, gets the rest after the run.
        patch.setattr(mlflow_tracking, "DRAIN_SECONDS", 300.0)
        assert mlflow_tracking.drain(list((shared_home / "tracking").glob("*.jsonl")))
    return run


def test_the_first_run_builds_every_stage(first_run: dict[str, Any]) -> None:
    assert first_run["status"] == "completed"
    assert set(states(first_run).values()) == {"built"}
    took = {stage["name"]: stage["resources"] for stage in first_run["stages"]}
    assert all(one["cpu_seconds"] > 0 and one["peak_bytes"] > 1e6 for one in took.values())
    assert all(took[name]["bytes_per_second"] > 0 for name in STAGES[:6])
    assert {name.split("/")[0] for name in states(first_run)} == set(STAGES)
    needed = {"bits_per_byte", "bits_per_byte_witten_bell", "accuracy", "accuracy_majority"}
    assert needed <= set(first_run["metrics"])


def test_the_report_is_one_self_contained_page(first_run: dict[str, Any]) -> None:
    page = Path(first_run["report"]).read_text()
    assert "<svg" in page
    assert 'src="http' not in page and "<link" not in page
    assert "not a measure of quality" in page


def test_every_ledger_balances(first_run: dict[str, Any]) -> None:
    ledgers = {s["name"]: s["ledger"] for s in first_run["stages"] if s["ledger"]}
    assert set(STAGES[:4]) <= set(ledgers)
    for ledger in ledgers.values():
        assert ledger["in"] == ledger["out"] + sum(ledger["rejects"].values())


def test_prefect_shows_the_stages_and_mlflow_the_nested_runs(first_run: dict[str, Any]) -> None:
    url = first_run["urls"]["prefect"]
    base, flow_run = url.split("/runs/")[0], url.rsplit("/", 1)[1]
    runs = task_runs(flow_run, states(first_run), base)
    assert set(runs) == set(states(first_run))
    assert {run["state"]["type"] for run in runs.values()} == {"COMPLETED"}
    said = {name: run["state"]["message"] for name, run in runs.items()}
    assert said["filter"].startswith("648 of 730 rows") and "bits per byte" in said["evaluate"]
    shown = {"flow_runs": {"id": {"any_": [flow_run]}}}
    links = prefect_api(base).post("/artifacts/filter", json=shown).json()
    (link,) = [one["data"] for one in links if one["key"] == "smoke-report"]
    assert f"{first_run['urls']['report']})" in link
    assert runs["shards"]["task_inputs"]["inputs"], "the DAG has an edge into shards"
    logs = prefect_api(base).post("/logs/filter", json={"limit": 200}).json()
    assert any(log["name"].startswith("headrace") and log["task_run_id"] for log in logs)

    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{os.environ['HEADRACE_HOME']}/mlflow/mlflow.db")
    experiment = client.get_experiment_by_name("smoke").experiment_id
    runs = client.search_runs([experiment])
    (parent,) = [run for run in runs if run.info.run_name == first_run["id"]]
    children = [r for r in runs if r.data.tags.get("mlflow.parentRunId") == parent.info.run_id]
    of = {run.info.run_name: run for run in children}
    trained = {"pretrain", "classify", "instruct", "sweep", "trunk"}
    assert trained <= {name.split("/")[0] for name in of}
    for name, run in of.items():
        if name.split("/")[0] in trained:
            assert run.data.params and run.inputs.dataset_inputs, name
    pretrain = next(run for run in children if run.info.run_name == "pretrain")
    history = client.get_metric_history(pretrain.info.run_id, "loss")
    steps = [point.step for point in history]
    assert len(steps) > 5 and steps == sorted(set(steps))
    assert history[-1].value < history[0].value
    assert {run.info.status for run in [parent, *children]} == {"FINISHED"}
    assert f"/runs/{parent.info.run_id}?" in first_run["urls"]["mlflow"]
    assert 5 <= len(parent.data.metrics) <= 8
    assert parent.data.tags["mlflow.user"] and parent.inputs.dataset_inputs
    shown = {file.path for file in client.list_artifacts(parent.info.run_id)}
    assert {"report.html", f"{first_run['id']}.html"} <= shown
    versions = {v.name: v.tags for v in client.search_model_versions()}
    assert versions.keys() == {"smoke-pretrain", "smoke-classify", "smoke-instruct"}
    assert float(versions["smoke-pretrain"]["bits_per_byte"]) > 0
    members = {run.info.run_id for name, run in of.items() if name.startswith("sweep/")}
    assert all(member in first_run["urls"]["members"] for member in members)


def test_an_exam_of_the_recipe_is_shown_everywhere(first_run: dict[str, Any], exam: Path) -> None:
    accuracy = first_run["metrics"]["exam/modules.accuracy"]
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{os.environ['HEADRACE_HOME']}/mlflow/mlflow.db")
    run = client.get_run(first_run["urls"]["mlflow"].split("/runs/")[1].split("?")[0])
    assert run.data.metrics["exam/modules.accuracy"] == accuracy
    assert '"exam/modules.json"' in run.data.tags["mlflow.loggedArtifacts"]
    model = next(s["artifact"] for s in first_run["stages"] if s["name"] == "instruct")
    sat = headrace("exam", model, str(exam))
    assert (sat["accuracy"], sat["cached"]) == (accuracy, True)
    board = headrace("leaderboard")
    (entry,) = [e for e in board["entries"] if (e["task"], e["main"]) == ("modules", True)]
    assert (entry["model"], entry["value"]) == (f"instruct/{Path(model).name}", accuracy)
    assert Path(model).name in Path(board["page"]).read_text()


def test_a_second_run_finds_everything_cached_and_is_one_line(
    first_run: dict[str, Any], exam: Path
) -> None:
    everything = ("run", "smoke", "--set", f"evaluate.exams=[{exam}]")
    line = started(*everything, "--metric", "bits_per_byte")
    assert line.keys() == {"metric", "value", "id", "status", "seconds"}
    assert line["value"] == first_run["metrics"]["bits_per_byte"]
    assert line["seconds"] < first_run["seconds"] / 2
    again = record(line["id"])
    assert set(states(again).values()) == {"cached"}
    assert again["metrics"] == first_run["metrics"]
    page = Path(again["page"]).read_text()
    assert first_run["id"] in page and again["urls"]["report"] in page.replace("&amp;", "&")


def test_a_changed_vocabulary_rebuilds_what_depends_on_it(first_run: dict[str, Any]) -> None:
    planned = headrace("plan", "smoke", "--set", "tokenizer.vocab_size=600")
    whys = {stage["name"]: stage["why"] for stage in planned["stages"]}
    assert {whys[stage] for stage in ("read", "filter", "dedup", "redact")} == {"unchanged"}
    assert whys["tokenizer"] == "vocab_size 512 -> 600"
    assert whys["shards"] == "its tokenizer changed"


def test_what_a_run_said_is_kept(first_run: dict[str, Any]) -> None:
    lines = headrace("logs", first_run["id"])["lines"]
    assert any(line["stage"] == "pretrain" and "trained on" in line["message"] for line in lines)


def test_generate_continues_a_prompt(first_run: dict[str, Any]) -> None:
    model = next(s["artifact"] for s in first_run["stages"] if s["name"] == "pretrain")
    reply = headrace("generate", model, "--prompt", "def main(", "--max-tokens", "5")
    assert len(reply["tokens"]) <= 5 and isinstance(reply["text"], str)


def test_lineage_reaches_the_source_files_and_their_licences(first_run: dict[str, Any]) -> None:
    graph = headrace("lineage", "judge")
    (source,) = [node for node in graph["nodes"] if node["kind"] == "source"]
    files = [node for node in graph["nodes"] if node["kind"] == "file"]
    assert source["licenses"] == {"PSF-2.0": sum(node["rows"] for node in files)}
    assert "python://stdlib/json/decoder.py" in {node["id"] for node in files}


def losses(run: dict[str, Any]) -> list[tuple[int, float]]:
    folder = Path(next(s["artifact"] for s in run["stages"] if s["name"] == "pretrain"))
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(row["step"], row["loss"]) for row in rows]


def weights(run: dict[str, Any]) -> bytes:
    folder = Path(next(s["artifact"] for s in run["stages"] if s["name"] == "pretrain"))
    return (folder / "model.safetensors").read_bytes()


def disturb(with_signal: signal.Signals) -> tuple[int, dict[str, Any]]:
    """Send the command a signal once it has trained a while; its exit status and its object."""
    command = [*HEADRACE, "pretrain", "smoke", *LONGER, "--json"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        # A test run in the background ignores Ctrl-C, and would hand that on.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    checkpoints = Path(os.environ["HEADRACE_HOME"]) / "work"
    before = newest(checkpoints)
    deadline = time.monotonic() + 120
    while newest(checkpoints) == before:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(with_signal)
    printed, _ = process.communicate(timeout=60)
    return process.returncode, json.loads(printed or "{}")


def newest(work: Path) -> str:
    return max((p.name for p in work.glob("pretrain-*/checkpoints/step-*")), default="")


@pytest.mark.slow
def test_interrupted_killed_and_resumed_equals_undisturbed(first_run: dict[str, Any]) -> None:
    """Ctrl-C, SIGTERM, kill -9 of the flow in mid-training, a first run's model being lost; the
    same command then goes on. (Of a training alone: `tests/faults`, by default.)
    """
    run = started("pretrain", "smoke", *LONGER)
    undisturbed = losses(run), weights(run)
    shutil.rmtree(next(s["artifact"] for s in run["stages"] if s["name"] == "pretrain"))
    for number in ENDINGS:
        ended, run = disturb(number)
        assert run["status"] == "failed"
        assert (ended, run["error"]) == ENDINGS[number]
        assert record(run["id"])["status"] == "crashed"
    assert disturb(signal.SIGKILL)[0] == -signal.SIGKILL
    resumed = started("pretrain", "smoke", *LONGER)
    assert (losses(resumed), weights(resumed)) == undisturbed
