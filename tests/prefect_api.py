"""Prefect's API as the tests ask it: over the wire, with the password of its server."""

import os
import time
from collections.abc import Collection
from typing import Any

import httpx

from cluster.keys import authorization


def prefect_api(server: str | None = None) -> httpx.Client:
    """A client of the server at this address, by default that of the test run."""
    url = server or os.environ["PREFECT_API_URL"].removesuffix("/api")
    headers = {"Authorization": authorization(url)}
    return httpx.Client(base_url=f"{url}/api", headers=headers, timeout=30)


def task_runs(flow_run: str, names: Collection[str], server: str | None = None) -> dict[str, Any]:
    """The task runs of a flow run by name, once all of these are there.

    The server records them from events, a batch at a time: the last may follow the run's end.
    """
    body = {"flow_runs": {"id": {"any_": [flow_run]}}, "limit": 200}
    deadline = time.monotonic() + 60
    with prefect_api(server) as api:
        while True:
            found = api.post("/task_runs/filter", json=body).raise_for_status().json()
            shown = {run["name"]: run for run in found}
            ended = all(run["state"] and run["end_time"] for run in found)
            if (ended and shown.keys() >= set(names)) or time.monotonic() > deadline:
                return shown
            time.sleep(0.2)
