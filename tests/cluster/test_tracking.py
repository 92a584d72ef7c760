import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster import mlflow_tracking, named_servers, tracking
from cluster.environment import own_store
from cluster.mlflow_tracking import PipelineRun, close, journal_key, stage_tracker
from cluster.stage import stage
from cluster.tracking import JournalTracker, NullTracker
from tests.cluster import mlflow_outage


@stage(version=1, trains=True)
def pretrain(settings: int, draft: Any) -> None: ...


@stage(version=1)
def filter_text(settings: int, draft: Any) -> None: ...


FINGERPRINT = "0123456789abcdef"
TAGS = {"prefect.flow_run_id": "flow-1", "mlflow.user": "ada"}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


@pytest.fixture
def sender(fresh_home: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from cluster.mlflow_sender import Sender

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)  # no store that the user names
    yield Sender(fresh_home / "tracking", database, fresh_home / "artifacts")


def pipeline(request: pytest.FixtureRequest) -> PipelineRun:
    """A pipeline run under a name of its own, as all tests share one database."""
    return PipelineRun.start("mine", request.node.name, {"seed": 0}, TAGS)


def artifact(name: str, fingerprint: str, path: Path) -> SimpleNamespace:
    manifest = SimpleNamespace(rows=7, tokens=None)
    return SimpleNamespace(name=name, fingerprint=fingerprint, path=path, manifest=manifest)


def rows(first: int, last: int) -> list[dict[str, float]]:
    return [{"step": step, "loss": 10.0 - step} for step in range(first, last + 1)]


def history(sender: Any, run_id: str | None, key: str = "loss") -> list[tuple[int, float]]:
    return sorted((m.step, m.value) for m in sender.store().client.get_metric_history(run_id, key))


def test_a_training_stage_is_a_nested_run_of_its_pipeline(
    sender: Any, fresh_home: Path, request: pytest.FixtureRequest
) -> None:
    run = pipeline(request)
    stage_run = stage_tracker(pretrain, "pretrain", run.run_id, FINGERPRINT)
    stage_run.params({"model": {"depth": 4, "width": None}, "notes": "x" * 900})
    stage_run.metrics(rows(1, 3))
    stage_run.results({"loss": 0.1, "params": 12.0})  # each step has a loss; this is no step's
    stage_run.system(5, {"cpu_utilization_percentage": 50.0})
    stage_run.datasets({"shards": artifact("shards/mine-12", "f" * 64, Path("/s"))})
    stage_run.model(artifact("pretrain/mine-ab", FINGERPRINT, Path("/models/mine-ab")))
    (fresh_home / "trace.json.gz").touch()
    stage_run.file(fresh_home / "trace.json.gz")
    stage_run.close()
    run.tracker.metrics([{"step": 0, "bits_per_byte": 2.5}])
    run.finish("completed")
    sender.send_all()  # journals in the order of their names: the stage may come first
    sender.send_all()

    parent = sender.store().client.get_run(run.tracker.run_id)
    assert parent.info.status == "FINISHED"
    assert parent.data.metrics == {"bits_per_byte": 2.5}
    assert parent.data.params == {"seed": "0"}
    assert parent.data.tags["prefect.flow_run_id"] == "flow-1"

    nested = sender.store().client.get_run(stage_run.run_id)
    assert nested.info.status == "FINISHED"
    assert nested.data.tags["mlflow.parentRunId"] == run.tracker.run_id
    assert nested.data.tags["headrace.fingerprint"] == FINGERPRINT
    assert nested.data.tags["headrace.model"] == "/models/mine-ab"
    assert nested.data.tags["mlflow.user"] == "ada"
    assert nested.data.metrics["result/params"] == 12.0
    assert nested.data.metrics["system/cpu_utilization_percentage"] == 50.0
    assert nested.data.params["model.depth"] == "4"
    assert nested.data.params["model.width"] == "null"
    assert len(nested.data.params["notes"]) == 500
    assert history(sender, stage_run.run_id) == [(1, 9.0), (2, 8.0), (3, 7.0)]
    assert [f.path for f in sender.store().client.list_artifacts(stage_run.run_id)] == [
        "trace.json.gz"
    ]
    (entry,) = nested.inputs.dataset_inputs
    assert (entry.dataset.name, entry.dataset.digest) == ("shards/mine-12", "f" * 32)
    assert json.loads(entry.dataset.profile) == {"num_rows": 7}
    url = run.url("http://127.0.0.1:5000/")
    assert url == (
        f"http://127.0.0.1:5000/#/experiments/{parent.info.experiment_id}/runs/{parent.info.run_id}"
        "?workflowType=machine_learning"
    )


def test_a_model_is_registered_once_with_its_evaluation(
    sender: Any, request: pytest.FixtureRequest
) -> None:
    """Which waits for it where the journals are sent in another order."""
    from cluster.mlflow_models import NotYet

    run = PipelineRun.start("a-recipe", request.node.name, {"seed": 0}, {})
    stage_run = stage_tracker(pretrain, "pretrain", run.run_id, "model000")
    sender.send_all()
    sender.send_all()
    assert stage_run.run_id is not None
    made = artifact("pretrain/mine-model000", "model000" * 8, Path("/models/mine-model000"))
    stage_run.model(made, "mine-pretrain")
    run.tracker.scores(stage_run.run_id, journal_key("pretrain", "model000"), {"accuracy": 0.51})
    run.finish("completed")
    with pytest.raises(NotYet):
        sender._send(run.tracker.path)
    state = stage_run.path.with_suffix(".sent")
    before = state.read_text()
    sender._send(stage_run.path)
    state.write_text(before)  # killed after sending, before remembering
    sender.send_all()
    (version,) = sender.store().client.search_model_versions("name = 'mine-pretrain'")
    assert version.tags["accuracy"] == "0.51"
    assert version.tags["headrace.path"] == "/models/mine-model000"
    assert version.run_id == stage_run.run_id
    model = sender.store().client.get_logged_model(version.tags["headrace.logged_model"])
    assert [(m.key, m.value) for m in model.metrics] == [("accuracy", 0.51)]


def test_a_killed_stage_goes_on_in_the_same_run_and_repeats_no_step(
    sender: Any, request: pytest.FixtureRequest
) -> None:
    fingerprint = "killed00"
    first = PipelineRun.start("mine", f"{request.node.name}-1", {}, {})
    attempt = stage_tracker(pretrain, "pretrain", first.run_id, fingerprint)
    attempt.metrics(rows(1, 5))
    with attempt.path.open("a") as file:  # a line cut off by the kill
        file.write('{"rows": [{"step": 6, "lo')
    sender.send_all()
    sender.send_all()
    before = attempt.run_id
    close(first.run_id, "KILLED")
    sender.send_all()
    assert sender.store().client.get_run(before).info.status == "KILLED"

    second = PipelineRun.start("mine", f"{request.node.name}-2", {}, {})
    again = stage_tracker(pretrain, "pretrain", second.run_id, fingerprint)
    sender.send_all()
    assert again.run_id == before
    assert sender.store().client.get_run(before).info.status == "RUNNING"
    again.metrics(rows(3, 7))  # training resumed from the checkpoint of step 2
    again.close()
    sender.send_all()
    assert history(sender, before) == [(step, 10.0 - step) for step in range(1, 8)]
    assert sender.store().client.get_run(before).info.status == "FINISHED"


def test_a_finished_stage_that_is_rebuilt_gets_a_run_of_its_own(
    sender: Any, request: pytest.FixtureRequest
) -> None:
    run = pipeline(request)
    ids = []
    for _ in range(2):
        tracker = stage_tracker(pretrain, "pretrain", run.run_id, "rebuilt0")
        tracker.metrics(rows(1, 2))
        tracker.close()
        sender.send_all()
        sender.send_all()
        ids.append(tracker.run_id)
    assert ids[0] != ids[1]
    assert history(sender, ids[1]) == [(1, 9.0), (2, 8.0)]


def test_sending_twice_stores_once(sender: Any, request: pytest.FixtureRequest) -> None:
    run = pipeline(request)
    tracker = stage_tracker(pretrain, "pretrain", run.run_id, "twice000")
    sender.send_all()
    sender.send_all()
    state = tracker.path.with_suffix(".sent")
    before = state.read_text()
    tracker.metrics(rows(1, 3))
    sender.send_all()
    state.write_text(before)  # killed after sending, before remembering
    sender.send_all()
    assert history(sender, tracker.run_id) == [(1, 9.0), (2, 8.0), (3, 7.0)]


def test_a_table_of_rows_is_sent_once(
    sender: Any, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    run = pipeline(request)
    path = tmp_path / "rows.jsonl"
    path.write_text('{"id": "größer", "right": true}\n{"id": 2, "nats": [1.5, -2]}\n')
    sender.send_all()
    state = run.tracker.path.with_suffix(".sent")
    before = state.read_text()
    run.tracker.table("exam.json", path)
    run.tracker.table("gone.json", tmp_path / "gone.jsonl")
    sender.send_all()
    state.write_text(before)  # killed after sending, before remembering
    sender.send_all()
    run_id = run.tracker.run_id
    assert run_id is not None
    table = json.loads(
        Path(sender.store().client.download_artifacts(run_id, "exam.json")).read_text()
    )
    assert table["columns"] == ["id", "right", "nats"]
    assert table["data"] == [["größer", True, None], [2, None, "[1.5, -2]"]]
    tags = sender.store().client.get_run(run_id).data.tags
    listed = json.loads(tags["mlflow.loggedArtifacts"])
    assert listed == [{"path": "exam.json", "type": "table"}]


def test_an_unreachable_store_loses_nothing(
    sender: Any, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = pipeline(request)
    sender.send_all()
    log_batch = sender.store().client.log_batch

    def fail(*_: Any, **__: Any) -> None:
        raise ConnectionError("the store is away")

    monkeypatch.setattr(sender.store().client, "log_batch", fail)
    tracker = stage_tracker(pretrain, "pretrain", run.run_id, "away0000")
    tracker.metrics(rows(1, 2))
    sender.send_all()
    tracker.metrics(rows(3, 4))
    monkeypatch.setattr(sender.store().client, "log_batch", log_batch)
    sender._retry_at.clear()
    sender.send_all()
    assert history(sender, tracker.run_id) == [(1, 9.0), (2, 8.0), (3, 7.0), (4, 6.0)]


@pytest.fixture
def away(fresh_home: Path, database: str, tmp_path: Path) -> Iterator[Path]:
    """MLflow and its sender in a process of their own; errors while this file exists."""
    (fresh_home / "tracking").mkdir(parents=True, exist_ok=True)
    arguments = [str(fresh_home / "tracking"), database, str(tmp_path / "away")]
    command = [sys.executable, "-m", "tests.cluster.mlflow_outage", *arguments]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[2], stderr=subprocess.DEVNULL)
    yield tmp_path / "away"
    process.kill()
    process.wait()


def add_time(spent: list[tuple[float, float]], call: Callable[..., None], *arguments: Any) -> None:
    began, used = time.perf_counter(), time.thread_time()
    call(*arguments)
    spent.append((time.perf_counter() - began, time.thread_time() - used))


@pytest.mark.parametrize(
    ("steps", "seconds"), [(300, 0.0), pytest.param(12_000, 60.0, marks=pytest.mark.slow)]
)
def test_mlflow_answering_errors_costs_training_no_time_and_no_figure(
    sender: Any,
    away: Path,
    monkeypatch: pytest.MonkeyPatch,
    steps: int,
    seconds: float,
) -> None:
    """The outage lasts as long as the training and at least `seconds`; steps take milliseconds, so
    that logging would show. In the short form other processes may take the processor in the middle
    of a call: there its CPU time counts, and that none waits for MLflow.
    """
    from cluster.placement import Placement
    from tasks.training.launch import launch
    from tasks.training.telemetry import MetricsFile, Reporter
    from tests.training import toy

    run = PipelineRun.start("mine", f"outage-{steps}", {}, {})
    tracker = stage_tracker(pretrain, "pretrain", run.run_id, "outage00")
    deadline = time.monotonic() + 120
    while tracker.run_id is None:
        assert time.monotonic() < deadline, "MLflow does not answer"
        time.sleep(0.05)
    away.touch()
    spent: list[tuple[float, float]] = []
    for owner, name in ((MetricsFile, "append"), (Reporter, "progress"), (Reporter, "final")):
        call = getattr(owner, name)
        monkeypatch.setattr(
            owner, name, lambda *arguments, call=call: add_time(spent, call, *arguments)
        )
    began = time.monotonic()
    folder = away.parent / "training"
    job = toy.job(folder, build=toy.network, steps=steps, tracker=tracker, checkpoint_seconds=5)
    launch(job, Placement())
    training = sum(json.loads(line)["seconds"] for line in (folder / "metrics.jsonl").open())
    time.sleep(max(0.0, seconds - (time.monotonic() - began)))
    walls, used = zip(*spent, strict=True)
    print(f"{sum(walls) / training:.2%} of {training:.1f} s spent on logging")
    assert sum(walls if seconds else used) < 0.02 * training
    assert max(walls) < mlflow_outage.RETRY_SECONDS
    assert history(sender, tracker.run_id) == []
    away.unlink()
    monkeypatch.setattr(mlflow_tracking, "DRAIN_SECONDS", 120)
    assert mlflow_tracking.drain([tracker.path])
    for key in ("loss", "lr", "grad_norm", "seconds"):
        assert [step for step, _ in history(sender, tracker.run_id, key)] == [*range(1, steps + 1)]


def test_an_event_that_mlflow_refuses_does_not_hold_up_the_next(
    sender: Any, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    run = pipeline(request)
    tracker = stage_tracker(pretrain, "pretrain", run.run_id, "refused0")
    tracker.datasets({"shards": artifact("n" * 600, "f" * 64, Path("/s"))})
    tracker.metrics(rows(1, 2))
    sender.send_all()
    sender.send_all()
    assert "MLflow refuses ['inputs', 'time']" in caplog.text
    assert history(sender, tracker.run_id) == [(1, 9.0), (2, 8.0)]


def test_figures_that_are_not_finite_are_shown_as_such(
    sender: Any, request: pytest.FixtureRequest
) -> None:
    run = pipeline(request)
    tracker = stage_tracker(pretrain, "pretrain", run.run_id, "infinite")
    tracker.metrics([{"step": 1, "loss": math.nan, "grad norm!": math.inf, "note": "x"}])
    sender.send_all()
    sender.send_all()
    metrics = sender.store().client.get_run(tracker.run_id).data.metrics
    assert set(metrics) == {"loss", "grad norm_"}
    assert all(math.isnan(value) for value in metrics.values())


def test_training_goes_on_when_the_disk_is_full(
    fresh_home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tracker = JournalTracker("full", {"name": "full"})
    tracker.path = Path("/dev/full")
    tracker.metrics(rows(1, 1))
    assert "No space left on device" in caplog.text
    assert '"step": 1.0' in caplog.text


def test_a_failed_pipeline_ends_its_open_stages(fresh_home: Path) -> None:
    run = PipelineRun.start("mine", "failing", {}, {})
    done = stage_tracker(pretrain, "pretrain", run.run_id, "done0000")
    open_ = stage_tracker(pretrain, "pretrain", run.run_id, "open0000")
    done.close()
    run.finish("failed")
    assert tracking.ended(done.path) == "FINISHED"
    assert tracking.ended(open_.path) == "FAILED"


def test_only_training_stages_of_a_tracked_pipeline_are_tracked(fresh_home: Path) -> None:
    assert isinstance(stage_tracker(filter_text, "filter", "run", FINGERPRINT), NullTracker)
    assert isinstance(stage_tracker(pretrain, "pretrain", None, FINGERPRINT), NullTracker)


def test_a_slow_store_is_waited_for_and_then_left_behind(
    fresh_home: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mlflow_tracking, "DRAIN_SECONDS", 0.0)
    tracker = JournalTracker("slow", {"name": "slow"})
    assert not mlflow_tracking.drain([tracker.path])
    assert "MLflow is behind on 1 runs" in caplog.text
    sent = {"offset": tracker.path.stat().st_size}
    tracker.path.with_suffix(".sent").write_text(json.dumps(sent))
    assert mlflow_tracking.drain([tracker.path])


def test_a_run_goes_to_the_store_that_its_command_names(
    sender: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever store the process that sends was started for; the stages go with their run."""
    other = f"sqlite:///{tmp_path}/other.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", other)
    run = PipelineRun.start("mine", "run-elsewhere", {}, {})
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:////nowhere/else.db")
    stage_run = stage_tracker(pretrain, "pretrain", run.run_id, "elsewhere")
    for _ in range(2):
        sender.send_all()
    found = sender.store(other).client
    (experiment,) = found.search_experiments(filter_string="name = 'mine'")
    names = {one.info.run_name for one in found.search_runs([experiment.experiment_id])}
    assert names == {"run-elsewhere", "pretrain"} and stage_run.run_id


def test_d16_a_password_of_a_database_is_in_no_journal_and_no_record(
    fresh_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that sends has it in its variables."""
    uri = "postgresql://me:CANARY@127.0.0.1:9/runs"
    opened: list[str] = []
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    from cluster import mlflow_sender

    monkeypatch.setattr(mlflow_sender, "TrackingStore", lambda uri, *_: opened.append(uri))
    run = PipelineRun.start("mine", "run-1", {}, {})
    told = run.tracker.path.read_text()
    assert "postgresql://me:<hidden-" in told and "CANARY" not in told
    assert "CANARY" not in str(named_servers.store_shown())
    sender = mlflow_sender.Sender(fresh_home / "tracking", own_store(), fresh_home)
    sender.store(tracking.begun(run.tracker.path)["to"])
    assert opened == [uri]


def test_a_new_journal_is_not_one_that_older_ones_made_room_for(
    sender: Any, fresh_home: Path
) -> None:
    """Those that were sent and ended are removed after a week; the newer ones stay."""
    for _ in range(3):
        stage_tracker(pretrain, "pretrain", "a-run", "0123").close()
    first, *_, last = sorted((fresh_home / "tracking").glob("*.jsonl"))
    first.unlink()
    stage_tracker(pretrain, "pretrain", "a-run", "0123")
    names = {path.name for path in (fresh_home / "tracking").glob("*.jsonl")}
    assert len(names) == 3 and last.name.replace(".3.", ".4.") in names


def test_what_names_no_store_goes_to_that_of_the_home(
    fresh_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the process that sends was started for a store of the user's."""
    from cluster import mlflow_sender, mlflow_server

    asked: list[str] = []
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/other.db")
    monkeypatch.setattr(mlflow_server.os, "nice", lambda more: 0)
    monkeypatch.setattr(mlflow_sender.Sender, "run", lambda self: asked.append(self.uri))
    mlflow_server.main()
    assert asked == [f"sqlite:///{fresh_home}/mlflow/mlflow.db"]
    assert (tmp_path / "other.db").exists()
