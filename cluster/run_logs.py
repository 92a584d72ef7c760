"""The log of a run: what its flow and its stages said, wherever they ran, from Prefect's server."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from cluster.errors import BadInput, StageFailed
from cluster.run_names import find_run
from cluster.runs import RunRecord
from cluster.services import up

PAGE = 200  # lines that a server returns at once, at most
POLL_SECONDS = 1.0
LATE = timedelta(seconds=30)  # workers send their lines in batches: one may come after a later one


class Line(NamedTuple):
    """One line: when (UTC, ISO 8601), how grave, by whom, of which stage, what."""

    time: str
    level: str
    logger: str
    stage: str
    message: str


def lines(root: Path, record: RunRecord, follow: bool = False) -> Iterator[Line]:
    """The lines of a run so far, oldest first; with `follow` those to come, until it has ended.

    Raises BadInput for a run without a flow run, StageFailed when its server cannot be asked.
    """
    if record.flow_run_id is None:
        raise BadInput(f"run {record.id} has no log: its record names no flow run of Prefect")
    up()
    told: set[Any] = set()
    stages: dict[Any, str] = {None: ""}
    newest: datetime | None = None
    while True:
        going_on = record.status == "running" and record.alive
        for found in _read(record.flow_run_id, newest and newest - LATE):
            if found.id not in told:
                _name(stages, found.task_run_id)
                told.add(found.id)
                newest = found.timestamp
                yield _line(found, stages)
        if not (follow and going_on):
            return
        time.sleep(POLL_SECONDS)
        record = find_run(root, record.id)


def _read(flow_run_id: str, after: datetime | None) -> Iterator[Any]:
    """What the server has of a flow run and its tasks since some time."""
    from prefect.client.schemas.filters import LogFilter

    chosen: dict[str, Any] = {"flow_run_id": {"any_": [flow_run_id]}}
    if after:
        chosen["timestamp"] = {"after_": after}
    wanted, place = LogFilter.model_validate(chosen), 0
    with _server() as server:
        while page := server.read_logs(wanted, limit=PAGE, offset=place):
            yield from page
            place += len(page)


def _name(stages: dict[Any, str], task_run_id: Any) -> None:
    """Learn the name of a task run, once."""
    if task_run_id not in stages:
        with _server() as server:
            stages[task_run_id] = server.read_task_run(task_run_id).name


@contextmanager
def _server() -> Iterator[Any]:
    """Prefect's own client. Raises StageFailed when its server fails."""
    import httpx
    from prefect.client.orchestration import get_client

    try:
        with get_client(sync_client=True) as server:
            yield server
    except httpx.HTTPError as error:
        raise StageFailed(f"the Prefect server cannot be asked for the log: {error}") from error


def _line(found: Any, stages: dict[Any, str]) -> Line:
    level, stage = logging.getLevelName(found.level), stages[found.task_run_id]
    return Line(found.timestamp.isoformat(), level, found.name, stage, found.message)
