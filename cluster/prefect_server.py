"""The Prefect server's REST interface, for what a dead process can no longer tell it itself."""

import os
from typing import Any

import httpx

UNFINISHED = ["RUNNING", "PENDING", "SCHEDULED", "PAUSED", "CANCELLING"]


def mark_crashed(
    *,
    flow_run_id: str | None = None,
    task_run_id: str | None = None,
) -> list[str]:
    """Set a flow run with its unfinished task runs, or one task run, to Crashed.

    Returns the ids of what was changed; runs that have ended stay as they are.
    """
    state = {"type": "CRASHED", "name": "Crashed", "message": "Its process is gone."}
    changed = []
    with client() as server:
        for kind, run_id in _unfinished(server, flow_run_id, task_run_id):
            body = {"state": state, "force": True}
            server.post(f"/{kind}/{run_id}/set_state", json=body).raise_for_status()
            changed.append(run_id)
    return changed


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


def _unfinished(
    server: httpx.Client, flow_run_id: str | None, task_run_id: str | None
) -> list[tuple[str, str]]:
    """Kind and id of the unfinished runs that are meant, task runs before their flow run."""
    state = {"state": {"type": {"any_": UNFINISHED}}}
    found: list[tuple[str, str]] = []
    if task_run_id:
        found += _ids(server, "task_runs", state | {"id": {"any_": [task_run_id]}})
    if flow_run_id:
        found += _ids(server, "task_runs", state | {"flow_run_id": {"any_": [flow_run_id]}})
        found += _ids(server, "flow_runs", state | {"id": {"any_": [flow_run_id]}})
    return found


def _ids(server: httpx.Client, kind: str, wanted: dict[str, Any]) -> list[tuple[str, str]]:
    reply = server.post(f"/{kind}/filter", json={kind: wanted})
    reply.raise_for_status()
    return [(kind, run["id"]) for run in reply.json()]
