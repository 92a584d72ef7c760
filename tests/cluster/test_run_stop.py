"""`headrace stop`: a run is ended in order, or it is said why not."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cluster import reaper, run_stop, services
from cluster.errors import BadInput
from cluster.run_stop import stop_run
from cluster.runs import RunRecord, records

ORDERLY = """
import signal, sys, time
from pathlib import Path
from cluster.runs import RunRecord
root, deaf = Path(sys.argv[1]), sys.argv[2] == "deaf"
record = RunRecord.start({"name": "mill"}, "data")
def end(*_):
    if not deaf:
        record.model_copy(update={"status": "crashed"}).save(root)
        sys.exit(143)
signal.signal(signal.SIGTERM, end)
record.save(root)
print("ready", flush=True)
while True:
    time.sleep(0.05)
"""


@pytest.fixture(autouse=True)
def no_services(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prefect and MLflow have nothing to be told of here."""
    monkeypatch.setattr(services, "up", lambda: None)

    def reap(root: Path) -> None:
        for record in records(root):
            if record.status == "running" and not record.alive:
                record.model_copy(update={"status": "crashed"}).save(root)

    monkeypatch.setattr(reaper, "reap", reap)


def running(root: Path, manner: str) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", ORDERLY, str(root), manner],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout and process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize(
    ("manner", "done", "code"), [("civil", "stopped", 143), ("deaf", "killed", -9)]
)
def test_a_running_run_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manner: str, done: str, code: int
) -> None:
    monkeypatch.setattr(run_stop, "PATIENCE", 1.0)
    process = running(tmp_path, manner)
    with process, ThreadPoolExecutor(1) as beside:
        asked = beside.submit(stop_run, tmp_path, "mill")
        try:
            # The parent waits as a shell would: a zombie is no process that goes on.
            assert process.wait(60) == code
            record, how = asked.result(60)
        finally:
            process.kill()
    assert (record.status, how) == ("crashed", done)


def test_one_that_has_ended_is_left_alone(tmp_path: Path) -> None:
    record = RunRecord.start({"name": "mill"}, "data").model_copy(update={"status": "completed"})
    record.save(tmp_path)
    assert stop_run(tmp_path, "mill") == (record, "ended")


def test_one_whose_process_is_gone_is_marked(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    record = RunRecord.start({"name": "mill"}, "data")
    gone = record.process | {"pid": process.pid}
    record.model_copy(update={"process": gone}).save(tmp_path)
    found, how = stop_run(tmp_path, record.id)
    assert (found.status, how) == ("crashed", "gone")


def test_one_of_another_host_is_named_with_its_host(tmp_path: Path) -> None:
    record = RunRecord.start({"name": "mill"}, "data")
    record.model_copy(update={"process": record.process | {"host": "node-7"}}).save(tmp_path)
    with pytest.raises(BadInput, match=rf"is on host node-7.*there: headrace stop {record.id}"):
        stop_run(tmp_path, "mill")
