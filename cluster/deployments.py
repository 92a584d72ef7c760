"""Scheduled runs: a Prefect deployment on the work pool `headrace`, and the worker that runs it."""

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.environment import worker_variables
from cluster.prefect_server import client
from cluster.services import WORK_POOL, start_worker, up

if TYPE_CHECKING:
    from prefect import Flow

SCHEDULER_SECONDS = 15.0


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
    deployment = _deployment(flow, name, cron, parameters or {})
    deployment.entrypoint = entrypoint
    deployment_id = str(deployment.apply(work_pool_name=WORK_POOL))
    start_worker()
    return {"deployment": f"{flow.name}/{name}", "next_run": _next_run(deployment_id)}


def _deployment(
    flow: "Flow[..., Any]",
    name: str,
    cron: str,
    parameters: dict[str, Any],
) -> Any:
    from prefect.deployments.runner import EntrypointType, RunnerDeployment

    return RunnerDeployment.from_flow(
        flow,
        name,
        cron=cron,
        parameters=parameters,
        work_pool_name=WORK_POOL,
        job_variables={"env": _job_variables(), "working_dir": str(Path.cwd())},
        entrypoint_type=EntrypointType.MODULE_PATH,
    )


def _job_variables() -> dict[str, str]:
    """What a run's process needs; secrets and the server's address are its worker's own."""
    private = ("PREFECT_API_", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "HF_TOKEN")
    passed = worker_variables() | {"PYTHONPATH": os.environ["PYTHONPATH"]}
    return {k: v for k, v in passed.items() if not k.startswith(private)}


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
