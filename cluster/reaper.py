"""Runs whose process was killed: Prefect and MLflow go on showing them as running until told."""

import logging
from datetime import timedelta
from pathlib import Path

from cluster.mlflow_tracking import close
from cluster.prefect_server import NO_ANSWER, Ending, end_flow_run, unfinished_flow_runs
from cluster.runs import RunRecord, interrupted, records
from cluster.services import alive

FLOW = "headrace"
LONGEST_PLAN = timedelta(days=1)
STATES: dict[str, Ending] = {"completed": "COMPLETED", "failed": "FAILED"}
log = logging.getLogger("headrace.run")


def reap(root: Path) -> list[RunRecord]:
    """Mark every run that says `running` although its process is gone as crashed, everywhere.

    Prefect is asked which runs it thinks are going on, and told of those that are not: it may have
    been away when a run ended, or when it was to be told. Runs without a record are those of others
    or were killed while they were planned; the latter are ended a day later.
    """
    reaped = []
    for record in interrupted(root):
        if record.tracking_run:
            close(record.tracking_run, "KILLED")
        crashed = record.model_copy(update={"status": "crashed"})
        # The record last: as long as it says running, the next reaper does all of this again.
        crashed.save(root)
        reaped.append(crashed)
        log.info("run %s was killed; it is marked as crashed", record.id)
    try:
        _tell_prefect(root)
    except NO_ANSWER as error:
        log.warning("Prefect is not told of killed runs before the next run: %s", error)
    return reaped


def _tell_prefect(root: Path) -> None:
    """End the flow runs that have ended; those that are going on have a living process."""
    if not (going_on := unfinished_flow_runs(FLOW)):
        return
    known = {record.flow_run_id: record.status for record in records(root)}
    for flow_run_id in going_on & known.keys():
        if known[flow_run_id] != "running":
            end_flow_run(flow_run_id, STATES.get(known[flow_run_id], "CRASHED"))
    if alive("prefect"):  # then all runs are of this home
        for flow_run_id in unfinished_flow_runs(FLOW, LONGEST_PLAN) - known.keys():
            end_flow_run(flow_run_id, "CRASHED")
