"""Scheduled runs: a Prefect deployment on the work pool `headrace`, and the worker that runs it.

What a deployment runs stands in `$HEADRACE_HOME/deployments`, where its worker reads it.
"""

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from cluster.environment import is_secret, worker_variables
from cluster.errors import BadInput
from cluster.files import write_atomically
from cluster.home import home, subfolder
from cluster.prefect_server import client
from cluster.services import WORK_POOL, given_prefect, start_worker, up
from cluster.settings import Record

if TYPE_CHECKING:
    from prefect import Flow

SCHEDULER_SECONDS = 15.0


class Deployed(Record):
    """What the runs of a deployment are."""

    entrypoint: str
    variables: dict[str, str]
    folder: Path


def deploy(
    flow: "Flow[..., Any]",
    *,
    entrypoint: str,
    name: str,
    cron: str,
    parameters: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Create or replace a deployment and see to it that a worker runs it.

    `entrypoint` is the flow's module path (`headrace.pipeline`); its runs are processes with this
    Python and this home, in this folder, to which paths are relative and where Prefect looks for
    that module first. The schedule is `cron`.
    Returns `deployment` (flow name/name) and `next_run` (ISO time, UTC).
    """
    up()
    _create_work_pool()
    ours = Deployed(entrypoint=entrypoint, variables=_variables(), folder=Path.cwd())
    deployment = _deployment(flow, name, cron, parameters or {}, ours)
    deployment.entrypoint = entrypoint
    deployment_id = str(deployment.apply(work_pool_name=WORK_POOL))
    write_atomically(record(deployment_id), ours.model_dump_json(indent=1))
    start_worker()
    return {"deployment": f"{flow.name}/{name}", "next_run": _next_run(deployment_id)}


def deployed(deployment_id: UUID | None) -> Deployed:
    """What a deployment of this home runs. Raises BadInput where it is none."""
    try:
        return Deployed.model_validate_json(record(str(deployment_id)).read_bytes())
    except FileNotFoundError as error:
        raise BadInput(
            f"deployment {deployment_id} was not made in {home()}, so nothing is run for it; "
            "`headrace deploy` makes it"
        ) from error


def record(deployment_id: str) -> Path:
    """Where it stands what a deployment runs."""
    return subfolder("deployments") / f"{deployment_id}.json"


def _deployment(
    flow: "Flow[..., Any]",
    name: str,
    cron: str,
    parameters: dict[str, Any],
    ours: Deployed,
) -> Any:
    from prefect.deployments.runner import EntrypointType, RunnerDeployment

    return RunnerDeployment.from_flow(
        flow,
        name,
        cron=cron,
        parameters=parameters,
        work_pool_name=WORK_POOL,
        # For the workers of a server of the user's own, which may be on other hosts.
        job_variables={"env": ours.variables, "working_dir": str(ours.folder)}
        if given_prefect()
        else {},
        entrypoint_type=EntrypointType.MODULE_PATH,
    )


def _variables() -> dict[str, str]:
    """What a run's process needs; secrets and the server's address are its worker's own."""
    passed = worker_variables() | {"PYTHONPATH": os.environ["PYTHONPATH"]}
    own = {name for name, value in passed.items() if is_secret(name, value)} | {"PREFECT_API_URL"}
    return {name: value for name, value in passed.items() if name not in own}


def _create_work_pool() -> None:
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectAlreadyExists

    with client() as server, contextlib.suppress(ObjectAlreadyExists):
        server.create_work_pool(WorkPoolCreate(name=WORK_POOL, type="process"))


def _next_run(deployment_id: str) -> str | None:
    """When the deployment runs next; the server schedules new ones within seconds."""
    from prefect.client.schemas.filters import DeploymentFilter, FlowRunFilter
    from prefect.client.schemas.sorting import FlowRunSort

    of = DeploymentFilter.model_validate({"id": {"any_": [deployment_id]}})
    waiting = FlowRunFilter.model_validate({"state": {"type": {"any_": ["SCHEDULED"]}}})
    first = FlowRunSort.EXPECTED_START_TIME_ASC
    deadline = time.monotonic() + SCHEDULER_SECONDS
    with client() as server:
        while time.monotonic() < deadline:
            if runs := server.read_flow_runs(
                deployment_filter=of, flow_run_filter=waiting, sort=first, limit=1
            ):
                start = runs[0].expected_start_time
                return start.isoformat() if start else None
            time.sleep(0.3)
    return None
