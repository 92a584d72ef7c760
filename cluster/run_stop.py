"""The end of a running run, asked for from another process: `headrace stop`."""

import contextlib
import os
import signal
import time
from pathlib import Path

from cluster.errors import BadInput
from cluster.locks import whoami
from cluster.run_names import find_run
from cluster.runs import RunRecord
from cluster.services import up

PATIENCE = 120.0  # seconds for checkpoints and records; a training saves within one step


def stop_run(root: Path, name: str) -> tuple[RunRecord, str]:
    """End the run of this name; its record then, and what was done: `stopped`, `killed` if it did
    not end by itself in time, `gone` if its process was no more, `ended` if it had ended before.

    Raises BadInput for a run of another host.
    """
    record = find_run(root, name)
    if record.status != "running":
        return record, "ended"
    host = record.process.get("host")
    if host != whoami()["host"]:
        raise BadInput(
            f"run {record.id} is on host {host}, and this is {whoami()['host']}; "
            f"there: headrace stop {record.id}"
        )
    done = "gone"
    if record.alive:
        done = _end(record)
    return _settled(root, record), done


def _end(record: RunRecord) -> str:
    """SIGTERM, on which the process puts everything in order; SIGKILL if it does not end by it."""
    pid = int(record.process["pid"])
    for number, said, seconds in (
        (signal.SIGTERM, "stopped", PATIENCE),
        (signal.SIGKILL, "killed", 5.0),
    ):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not record.alive:
                return said
            time.sleep(0.1)
    return "killed"


def _settled(root: Path, record: RunRecord) -> RunRecord:
    """The record of a run whose process is gone; Prefect and MLflow are told what it could not."""
    from cluster.reaper import reap

    up()
    reap(root)
    return find_run(root, record.id)
