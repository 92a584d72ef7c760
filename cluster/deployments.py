"""Scheduled runs: a Prefect deployment on a work pool, and the worker that runs it.

Runs in the pool of processes belong to this machine: its Python, its home, this folder; what they
run stands in `$HEADRACE_HOME/deployments`, where their worker reads it. Runs in a pool of
containers have an image, and the addresses of what they use: no path of this machine.

    python -m cluster.deployments kubernetes    # makes that pool, before a worker of it starts
"""

import contextlib
import os
import re
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit
from uuid import UUID

from pydantic import TypeAdapter

from cluster.automations import HEARTBEAT_SECONDS, block, look_after
from cluster.environment import given, is_secret, prepare, worker_variables
from cluster.errors import BadInput
from cluster.files import write_atomically
from cluster.home import home, subfolder
from cluster.named_servers import check_prefect
from cluster.prefect_server import client
from cluster.services import WORK_POOL, given_prefect, start_worker, up
from cluster.settings import Record

if TYPE_CHECKING:
    from prefect import Flow

Pool = Literal["process", "docker", "kubernetes"]
Overlap = Literal["enqueue", "cancel"]
POOLS: Mapping[Pool, str] = {
    "process": WORK_POOL,
    "docker": f"{WORK_POOL}-docker",
    "kubernetes": f"{WORK_POOL}-kubernetes",
}
START_SECONDS: Mapping[Pool, int] = {"process": 180, "docker": 1800, "kubernetes": 3600}
"""How long a run may take to begin: images are pulled, nodes are started."""
# What a container cannot do without: its own disk ends with it.
ADDRESSES = ("PREFECT_API_URL", "MLFLOW_TRACKING_URI", "HEADRACE_STORE")
A_PATH = re.compile("~?/|file:|sqlite:")
IN_KUBERNETES = "headrace"  # the namespace of runs, and the Secret whose variables they get
SCHEDULER_SECONDS = 15.0


class Deployed(Record):
    """What the runs of a deployment are."""

    entrypoint: str
    variables: dict[str, str]
    folder: Path


class Schedule(Record):
    """When a deployment runs, and what happens then."""

    cron: str
    overlap: Overlap = "enqueue"
    retries: int = 0
    retry_seconds: float = 60.0
    tags: tuple[str, ...] = ()
    queue: str = "cpu"
    notify: str | None = None

    def variables(self) -> dict[str, str]:
        """What tells the process of a run how often to try again, and to say that it lives."""
        return {
            "PREFECT_FLOWS_DEFAULT_RETRIES": str(self.retries),
            "PREFECT_FLOWS_DEFAULT_RETRY_DELAY_SECONDS": str(self.retry_seconds),
            "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(HEARTBEAT_SECONDS),
        }


def deploy(
    flow: "Flow[..., Any]",
    *,
    entrypoint: str,
    name: str,
    schedule: Schedule,
    parameters: dict[str, Any] | None = None,
    pool: Pool = "process",
    image: str | None = None,
) -> dict[str, Any]:
    """Create or replace a deployment; for processes, see to it that a worker runs it.

    `entrypoint` is the flow's module path (`headrace.pipeline`). Processes run in this folder, to
    which paths are relative and where Prefect looks for that module first. Containers have `image`.
    Raises BadInput for a time that is none, where containers have no image, or could not reach what
    they need, and for a notification block that there is not.
    Returns `deployment` (flow name/name), `next_run` (ISO time, UTC), the work pool, `pool`, and
    its `queue`.
    """
    from prefect.context import refresh_global_settings_context

    prepare()
    _check_cron(schedule.cron)
    if pool == "process":
        up()
        variables = _variables() | schedule.variables()
        ours = Deployed(entrypoint=entrypoint, variables=variables, folder=Path.cwd())
        # For the workers of a server of the user's own, which may be on other hosts.
        job = {"env": ours.variables, "working_dir": str(ours.folder)} if given_prefect() else {}
    else:
        ours, job = None, _container(pool, image, schedule)
        check_prefect()
        refresh_global_settings_context()  # a profile's server is known since `prepare`
    told = block(schedule.notify, name) if schedule.notify else None
    create_work_pool(pool)
    deployment = _deployment(flow, name, schedule, parameters or {}, pool, job)
    deployment.entrypoint = entrypoint
    deployment_id = str(deployment.apply(work_pool_name=POOLS[pool]))
    _order_form(deployment_id, flow)
    look_after(deployment_id, name, told, timedelta(seconds=START_SECONDS[pool]))
    if ours:
        write_atomically(record(deployment_id), ours.model_dump_json(indent=1))
        if not (given_prefect() and worker_online(pool)):
            start_worker()
    found = {"deployment": f"{flow.name}/{name}", "next_run": _next_run(deployment_id)}
    return found | {"pool": POOLS[pool], "queue": schedule.queue}


def worker_online(pool: Pool) -> bool:
    """Whether the server has lately heard of a worker that takes the runs of a pool."""
    with client() as server:
        workers = server.read_workers_for_work_pool(POOLS[pool])
    return any(worker.status == "ONLINE" for worker in workers)


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
    """The file that says what a deployment runs, for its worker."""
    return subfolder("deployments") / f"{deployment_id}.json"


def _check_cron(text: str) -> None:
    from prefect.client.schemas.schedules import CronSchedule
    from pydantic import ValidationError

    try:
        CronSchedule(cron=text)
    except ValidationError as error:
        raise BadInput(
            f"--cron '{text}' is no time in cron form: minute, hour, day of the month, month and "
            'day of the week, such as "0 3 * * *", each day at 3:00 UTC'
        ) from error


def _deployment(
    flow: "Flow[..., Any]",
    name: str,
    schedule: Schedule,
    parameters: dict[str, Any],
    pool: Pool,
    job: dict[str, Any],
) -> Any:
    """One run at a time: what is made twice at once is made once, and the other waits for it."""
    from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
    from prefect.deployments.runner import EntrypointType, RunnerDeployment

    strategies = ConcurrencyLimitStrategy
    late = strategies.ENQUEUE if schedule.overlap == "enqueue" else strategies.CANCEL_NEW
    return RunnerDeployment.from_flow(
        flow,
        name,
        cron=schedule.cron,
        concurrency_limit=ConcurrencyLimitConfig(
            limit=1, collision_strategy=late, grace_period_seconds=START_SECONDS[pool]
        ),
        tags=list(schedule.tags),
        work_queue_name=schedule.queue,
        parameters=parameters,
        job_variables=job,
        entrypoint_type=EntrypointType.MODULE_PATH,
    )


def _order_form(deployment_id: str, flow: "Flow[..., Any]") -> None:
    """Let the UI's form have the fields of each section in the order in which we declare them, and
    sections below what is short: fields without a position come as the database returns them.
    """
    from prefect.client.schemas.actions import DeploymentUpdate
    from prefect.utilities.callables import parameter_schema

    schema = parameter_schema(flow)
    short_first = sorted(schema.properties.values(), key=lambda field: "$ref" in str(field))
    sections = [section.get("properties", {}).values() for section in schema.definitions.values()]
    for fields in (short_first, *sections):
        for position, field in enumerate(fields):
            field["position"] = position
    with client() as server:
        ordered = DeploymentUpdate(parameter_openapi_schema=schema.model_dump(exclude_unset=True))
        server.update_deployment(UUID(deployment_id), ordered)


def _variables() -> dict[str, str]:
    """What a run's process needs; secrets and the server's address are its worker's own."""
    passed = _told() | {"PYTHONPATH": os.environ["PYTHONPATH"]}
    return {name: value for name, value in passed.items() if name != "PREFECT_API_URL"}


def _container(pool: Pool, image: str | None, schedule: Schedule) -> dict[str, Any]:
    """A run in an image; raises BadInput where it would not reach what it needs."""
    if not image:
        raise BadInput(f"--pool {pool} needs --image: Headrace's, from the Dockerfile in its clone")
    for name in (*ADDRESSES, "RAY_ADDRESS"):
        _check_reached(name, given(name), name in ADDRESSES)
    passed = {name: value for name, value in _told().items() if not A_PATH.match(value)}
    return {"env": passed | schedule.variables(), "image": image}


def _check_reached(name: str, value: str | None, needed: bool) -> None:
    """Raise BadInput for an address that no other machine reaches."""
    if not value and needed:
        raise BadInput(f"{name} is not set: containers need it, and have nothing in its place")
    address = value or ""
    host = urlsplit(address if "//" in address else f"//{address}").hostname or ""
    if A_PATH.match(address) or host == "localhost" or host.startswith("127."):
        raise BadInput(
            f"{name} is {value}, which is this machine's own: name one that containers reach too"
        )


def _told() -> dict[str, str]:
    """The variables that every run needs, but for secrets: these are its worker's own, or its
    pool's, as all who see the server can read a deployment.
    """
    address = os.environ.get("RAY_ADDRESS")
    passed = worker_variables() | ({"RAY_ADDRESS": address} if address else {})
    return {name: value for name, value in passed.items() if not is_secret(name, value)}


def create_work_pool(pool: Pool) -> None:
    """Make a work pool, unless there is one; without a template it takes its first worker's."""
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectAlreadyExists

    with client() as server, contextlib.suppress(ObjectAlreadyExists):
        template = _with_secret(server.read_worker_metadata()) if pool == "kubernetes" else {}
        wanted = WorkPoolCreate(name=POOLS[pool], type=pool, base_job_template=template)
        server.create_work_pool(wanted)


def _with_secret(known: dict[str, Any]) -> dict[str, Any]:
    """Prefect's own template of a job, in our namespace and with the variables of our Secret."""
    template = known["prefect-kubernetes"]["kubernetes"]["default_base_job_configuration"]
    template["variables"]["properties"]["namespace"]["default"] = IN_KUBERNETES
    pod = template["job_configuration"]["job_manifest"]["spec"]["template"]["spec"]
    pod["containers"][0]["envFrom"] = [{"secretRef": {"name": IN_KUBERNETES, "optional": True}}]
    # Else a Service named `prefect` gives variables that Prefect takes for its settings.
    pod["enableServiceLinks"] = False
    return template


def _next_run(deployment_id: str) -> str | None:
    """When the deployment runs next; the server schedules new ones within seconds."""
    from prefect.client.schemas.filters import DeploymentFilter, FlowRunFilter
    from prefect.client.schemas.sorting import FlowRunSort

    of = DeploymentFilter.model_validate({"id": {"any_": [deployment_id]}})
    # A run that was due before stays, though the schedule that it was of is replaced.
    waiting = FlowRunFilter.model_validate(
        {
            "state": {"type": {"any_": ["SCHEDULED"]}},
            "expected_start_time": {"after_": datetime.now(UTC)},
        }
    )
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


if __name__ == "__main__":
    prepare()
    create_work_pool(TypeAdapter(Pool).validate_python(sys.argv[1]))
