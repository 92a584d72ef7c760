"""Runs whose process was killed: Prefect and MLflow go on showing them as running until told."""

import logging
from pathlib import Path

import httpx

from cluster.mlflow_tracking import close
from cluster.prefect_server import mark_crashed
from cluster.runs import RunRecord, interrupted

log = logging.getLogger("headrace.run")


def reap(root: Path) -> list[RunRecord]:
    """Mark every run that says `running` although its process is gone as crashed, everywhere.

    A record stays for the next time when the Prefect server cannot be told now.
    """
    reaped = []
    for record in interrupted(root):
        try:
            if record.flow_run_id:
                mark_crashed(flow_run_id=record.flow_run_id)
        except httpx.HTTPError as error:
            log.warning("the killed run %s is not marked as crashed yet: %s", record.id, error)
            continue
        if record.tracking_run:
            close(record.tracking_run, "KILLED")
        crashed = record.model_copy(update={"status": "crashed"})
        crashed.save(root)
        reaped.append(crashed)
        log.info("run %s was killed; it is marked as crashed", record.id)
    return reaped
