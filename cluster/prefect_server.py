"""The Prefect server's REST interface, for what a dead process can no longer tell it itself."""

import os
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import httpx

GOING_ON = ["RUNNING", "PENDING", "CANCELLING"]
UNFINISHED = [*GOING_ON, "SCHEDULED", "PAUSED"]
MOST = 200
Ending = Literal["COMPLETED", "FAILED", "CRASHED"]


def mark_crashed(task_run_id: str) -> None:
    """Set a task run to Crashed, unless it has ended."""
    with client() as server:
        for found in _ids(server, "task_runs", {"id": {"any_": [task_run_id]}}, UNFINISHED):
            _set_state(server, "task_runs", found, "CRASHED")


def end_flow_run(flow_run_id: str, state: Ending) -> None:
    """Set a flow run that has not ended to this state, and its unfinished task runs to Crashed."""
    with client() as server:
        parent = {"flow_run_id": {"any_": [flow_run_id]}}
        for found in _ids(server, "task_runs", parent, UNFINISHED):
            _set_state(server, "task_runs", found, "CRASHED")
        for found in _ids(server, "flow_runs", {"id": {"any_": [flow_run_id]}}, UNFINISHED):
            _set_state(server, "flow_runs", found, state)


def unfinished_flow_runs(flow: str, older_than: timedelta = timedelta()) -> set[str]:
    """The ids of a flow's runs that its server thinks are going on: the newest two hundred."""
    begun = {"expected_start_time": {"before_": (datetime.now(UTC) - older_than).isoformat()}}
    with client() as server:
        of = {"flows": {"name": {"any_": [flow]}}}
        return set(_ids(server, "flow_runs", begun, GOING_ON, of))


def client() -> httpx.Client:
    """A client of the server at `PREFECT_API_URL`, with the user's credentials if there are any."""
    headers = {}
    if key := os.environ.get("PREFECT_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    secret = os.environ.get("PREFECT_API_AUTH_STRING")
    auth = httpx.BasicAuth(*secret.split(":", 1)) if secret else None
    return httpx.Client(
        base_url=os.environ["PREFECT_API_URL"], headers=headers, auth=auth, timeout=10.0
    )


def _set_state(server: httpx.Client, kind: str, run_id: str, state: Ending) -> None:
    why = "Its process is gone." if state == "CRASHED" else "This server was away when it ended."
    body = {"type": state, "name": state.capitalize(), "message": why}
    answer = server.post(f"/{kind}/{run_id}/set_state", json={"state": body, "force": True})
    answer.raise_for_status()


def _ids(
    server: httpx.Client,
    kind: str,
    wanted: dict[str, Any],
    states: list[str],
    of: dict[str, Any] | None = None,
) -> list[str]:
    """Ids of the flow or task runs in one of these states, the newest first."""
    query = {kind: wanted | {"state": {"type": {"any_": states}}}, **(of or {})}
    order = {"flow_runs": "START_TIME_DESC", "task_runs": "EXPECTED_START_TIME_DESC"}
    reply = server.post(f"/{kind}/filter", json=query | {"sort": order[kind], "limit": MOST})
    reply.raise_for_status()
    return [run["id"] for run in reply.json()]
