"""What the Prefect server is asked and told when a dead process can no longer do it itself."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

import httpx

if TYPE_CHECKING:
    from prefect import Task
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun, TaskRun
    from prefect.states import State

GOING_ON = ["RUNNING", "PENDING", "CANCELLING"]
UNFINISHED = [*GOING_ON, "SCHEDULED", "PAUSED"]
MOST = 200
NO_ANSWER = (httpx.HTTPError, RuntimeError)
"""What the client raises where the server is away; the second when it asks for its version."""
Ending = Literal["COMPLETED", "FAILED", "CRASHED"]


def mark_crashed(task_run_id: UUID, task: "Task[..., Any]") -> None:
    """Set a task run of the current flow run to Crashed, unless it has ended.

    A task run is first heard of by what its own process sends, seconds after it began: one that
    died sooner is made known here.
    """
    from prefect import runtime

    flow_run_id, name = UUID(runtime.flow_run.id), str(task.task_run_name)
    with client() as server:
        if _task_runs(server, {"id": {"any_": [task_run_id]}}):
            _crash_tasks(server, {"id": {"any_": [task_run_id]}})
        else:
            key, state = str(task_run_id), _state("CRASHED")
            server.create_task_run(task, flow_run_id, key, id=task_run_id, name=name, state=state)


def begin_wait(task: "Task[..., Any]", why: str) -> UUID:
    """Show in the current flow run that a stage waits, as a task run `Waiting`; its id."""
    from prefect import runtime
    from prefect.client.schemas.objects import StateType
    from prefect.states import State

    name = str(task.task_run_name)
    state = State(type=StateType.RUNNING, name="Waiting", message=why)
    flow_run_id = UUID(runtime.flow_run.id)
    with client() as server:
        run = server.create_task_run(task, flow_run_id, f"{name}-waits", name=name, state=state)
    return run.id


def end_wait(task_run_id: UUID) -> None:
    """Show that a stage waits no more."""
    from prefect.states import Completed

    with client() as server:
        server.set_task_run_state(task_run_id, Completed(name="Waited"), force=True)


def end_flow_run(flow_run_id: str, state: Ending) -> None:
    """Set a flow run that has not ended to this state, and its unfinished task runs to Crashed."""
    with client() as server:
        _crash_tasks(server, {"flow_run_id": {"any_": [flow_run_id]}})
        for run in _flow_runs(server, {"id": {"any_": [flow_run_id]}}, UNFINISHED):
            server.set_flow_run_state(run.id, _state(state), force=True)


def unfinished_flow_runs(flow: str, older_than: timedelta = timedelta()) -> set[str]:
    """The ids of a flow's runs that its server thinks are going on: the newest two hundred."""
    begun = {"expected_start_time": {"before_": datetime.now(UTC) - older_than}}
    with client() as server:
        return {str(run.id) for run in _flow_runs(server, begun, GOING_ON, flow)}


def client() -> "SyncPrefectClient":
    """A client of the server that Prefect's settings name, with the user's credentials."""
    from prefect.client.orchestration import get_client

    return get_client(httpx_settings={"timeout": 10.0}, sync_client=True)


def _crash_tasks(server: "SyncPrefectClient", wanted: dict[str, Any]) -> None:
    for run in _task_runs(server, wanted | {"state": {"type": {"any_": UNFINISHED}}}):
        server.set_task_run_state(run.id, _state("CRASHED"), force=True)


def _task_runs(server: "SyncPrefectClient", wanted: dict[str, Any]) -> "list[TaskRun]":
    from prefect.client.schemas.filters import TaskRunFilter

    runs = TaskRunFilter.model_validate(wanted)
    return server.read_task_runs(task_run_filter=runs, limit=MOST)


def _flow_runs(
    server: "SyncPrefectClient", wanted: dict[str, Any], states: list[str], flow: str | None = None
) -> "list[FlowRun]":
    """The flow runs in one of these states, the newest first."""
    from prefect.client.schemas.filters import FlowFilter, FlowRunFilter
    from prefect.client.schemas.sorting import FlowRunSort

    return server.read_flow_runs(
        flow_filter=FlowFilter.model_validate({"name": {"any_": [flow]}}) if flow else None,
        flow_run_filter=FlowRunFilter.model_validate(
            wanted | {"state": {"type": {"any_": states}}}
        ),
        sort=FlowRunSort.START_TIME_DESC,
        limit=MOST,
    )


def _state(kind: Ending) -> "State":
    from prefect.client.schemas.objects import StateType
    from prefect.states import State

    why = "Its process is gone." if kind == "CRASHED" else "This server was away when it ended."
    return State(type=StateType(kind), name=kind.capitalize(), message=why)
