"""Records of runs: read whatever version wrote them, left out when damaged, alive by start time."""

import json
import os
from pathlib import Path

import pytest

from cluster.runs import RunRecord, interrupted, records


def saved(root: Path, **changes: object) -> RunRecord:
    record = RunRecord.start({"name": "mill"}, "all").model_copy(update=changes)
    record.save(root)
    return record


@pytest.mark.parametrize(
    "text", ["", "{", '{"id": "mill', "[]", "null", '{"id": 3}', "\x00" * 100, '"\\ud800"']
)
def test_a_record_that_cannot_be_read_is_named_and_left_out(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    whole = saved(tmp_path)
    bad = tmp_path / "runs" / f"bad-{len(text)}.json"
    bad.write_text(text)
    assert records(tmp_path) == [whole]
    records(tmp_path)
    (told,) = [r.getMessage() for r in caplog.records]
    assert str(bad) in told and "remove the file" in told


def test_keys_of_another_version_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "runs" / f"{saved(tmp_path).id}.json"
    values = json.loads(path.read_text()) | {"weather": "rain"}
    stage = {"name": "a", "stage": "a", "fingerprint": "f", "state": "built", "why": "", "moon": 1}
    ledger = {"in": 1, "out": 1, "rejects": {}, "tide": "low"}
    path.write_text(json.dumps(values | {"stages": [stage | {"ledger": ledger}]}))
    (found,) = records(tmp_path)
    found.model_copy(update={"status": "completed"}).save(tmp_path)
    kept = json.loads(path.read_text())
    assert (kept["status"], kept["weather"]) == ("completed", "rain")
    assert kept["stages"][0]["moon"] == 1 and kept["stages"][0]["ledger"]["tide"] == "low"


def test_a_later_process_of_the_same_pid_is_another_one(tmp_path: Path) -> None:
    mine = saved(tmp_path)
    assert mine.alive
    assert mine.process["pid"] == os.getpid()
    earlier = mine.process | {"started": int(mine.process["started"]) - 1}
    reused = mine.model_copy(update={"process": earlier})
    assert not reused.alive
    reused.save(tmp_path)
    assert interrupted(tmp_path) == [reused]


def test_a_record_without_a_start_time_goes_by_its_pid(tmp_path: Path) -> None:
    mine = saved(tmp_path)
    old = {key: value for key, value in mine.process.items() if key != "started"}
    assert mine.model_copy(update={"process": old}).alive
    assert mine.model_copy(update={"process": old | {"host": "elsewhere"}}).alive
    assert not mine.model_copy(update={"process": mine.process | {"boot": "another"}}).alive
