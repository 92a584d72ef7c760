"""What MLflow is told of a run at its end."""

import json
from pathlib import Path

import pytest

from cluster.mlflow_tracking import journal_key
from cluster.runs import StageRecord
from flows.publishing import caught_up


def test_a_stage_gets_the_run_that_mlflow_gave_it_after_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    stage = StageRecord(
        name="pretrain", stage="pretrain", fingerprint="ab" * 32, state="built", why="first build"
    )
    assert caught_up(stage).tracking_run is None  # the sender is behind
    folder = tmp_path / "tracking"
    folder.mkdir(exist_ok=True)
    journal = folder / f"{journal_key('pretrain', stage.fingerprint)}.1.jsonl"
    journal.touch()
    journal.with_suffix(".sent").write_text(json.dumps({"run_id": "r1", "offset": 0}))
    assert caught_up(stage).tracking_run == "r1"
    assert caught_up(stage.model_copy(update={"tracking_run": "r0"})).tracking_run == "r0"
