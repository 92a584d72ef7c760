"""The local services: one Prefect server, the MLflow UI, and the worker of scheduled runs.

`up` starts what is missing and reuses what runs; `down` ends it; `status` tells. What was started
is in `$HEADRACE_HOME/services.json`. With `PREFECT_API_URL` or an http `MLFLOW_TRACKING_URI` set,
those are used and nothing is started in their place.
"""

import json
import os
import socket
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from cluster.environment import forget, given, prepare, put
from cluster.files import write_atomically
from cluster.home import home
from cluster.locks import lock
from cluster.processes import Process, claim_port, spawn, stop, tail

PREFECT_PORT, MLFLOW_PORT = 4200, 5000
START_SECONDS = 180.0
WORK_POOL = "headrace"
HEALTH = {"prefect": "/api/health", "mlflow": "/health"}


class ServiceFailed(RuntimeError):
    """A local service did not start; the message ends with its log."""


@dataclass(frozen=True)
class Services:
    """The addresses of what runs talk to."""

    prefect_ui: str
    mlflow_ui: str | None


def up(wait_for_prefect: bool = True, wait_for_mlflow: bool = False) -> Services:
    """Start or find the services and point this process at them (`PREFECT_API_URL`).

    Several processes may call it at once: one server is started. Raises ServiceFailed with the end
    of the log when a service that is waited for does not come up.
    """
    prepare()
    with lock(home() / "locks" / "services", timeout=START_SECONDS):
        if (prefect := _given_prefect()) is None:
            server = alive("prefect") or _start("prefect")
            prefect = str(server.url)
            put("PREFECT_API_URL", f"{prefect}/api")
            if wait_for_prefect:
                wait("prefect")
        mlflow = alive("mlflow") or _start("mlflow")
        if "worker" in _read() and alive("worker") is None:
            _start("worker")
    if wait_for_mlflow and mlflow.url:
        wait("mlflow")
    _refresh_prefect()
    return Services(prefect, _given_mlflow() or mlflow.url)


def wait(name: str) -> None:
    """Wait until a service that was started answers. Raises ServiceFailed with its log's end."""
    process, deadline = _read()[name], time.monotonic() + START_SECONDS
    while not answers(f"{process.url}{HEALTH[name]}"):
        if not process.alive or time.monotonic() > deadline:
            what = "did not answer in time" if process.alive else "ended at its start"
            raise ServiceFailed(
                f"the {name} server at {process.url} {what}; the end of {process.log}:\n"
                f"{tail(process.log)}"
            )
        time.sleep(0.1)


def start_worker() -> Process:
    """Start the worker that runs scheduled deployments; later calls of `up` restart it."""
    with lock(home() / "locks" / "services", timeout=START_SECONDS):
        return alive("worker") or _start("worker")


def down() -> dict[str, str]:
    """Stop the worker, the MLflow UI and the Prefect server; what became of each."""
    with lock(home() / "locks" / "services", timeout=START_SECONDS):
        found = _read()
        report: dict[str, str] = {
            name: stop(found[name]) for name in ("worker", "mlflow", "prefect") if name in found
        }
        _write({"worker": found["worker"]} if "worker" in found else {})
    forget("PREFECT_API_URL")
    return report


def status() -> dict[str, dict[str, Any]]:
    """`url`, `pid` (of what Headrace started) and `healthy` of prefect, mlflow and ray.

    Takes milliseconds and imports none of them.
    """
    given_urls = {"prefect": _given_prefect(), "mlflow": _given_mlflow()}
    found = {name: _server_status(name, url) for name, url in given_urls.items()}
    return found | {"ray": _ray_status()}


def _server_status(name: str, url: str | None) -> dict[str, Any]:
    process = None if url else alive(name)
    url = url or (process.url if process else None)
    healthy = url is not None and answers(url + HEALTH[name])
    return {"url": url, "pid": process.pid if process else None, "healthy": healthy}


def _ray_status() -> dict[str, Any]:
    """Ray lives with each run, so only a cluster named by the user can be down."""
    address = os.environ.get("RAY_ADDRESS") or "local"
    healthy = address in ("auto", "local") or _listens(address)
    return {"url": address, "pid": None, "healthy": healthy}


def _listens(address: str) -> bool:
    parts = urlsplit(address if "//" in address else f"//{address}")
    try:
        socket.create_connection((parts.hostname or "", parts.port or 10001), 0.5).close()
    except OSError:
        return False
    return True


def _given_prefect() -> str | None:
    """The user's Prefect server, not ours, even if a parent process set its address."""
    api, ours = given("PREFECT_API_URL"), _read().get("prefect")
    if api is None or (ours and api == f"{ours.url}/api"):
        return None
    return api.removesuffix("/api")


def _given_mlflow() -> str | None:
    """The user's tracking server; a database they name is shown by our own UI."""
    uri = given("MLFLOW_TRACKING_URI")
    return uri if uri and uri.startswith(("http://", "https://")) else None


def _start(name: str) -> Process:
    """Start a service and record it. The caller holds the lock."""
    process = {"prefect": _spawn_prefect, "mlflow": _spawn_mlflow, "worker": _spawn_worker}[name]()
    _write(_read() | {name: process})
    return process


def _spawn_prefect() -> Process:
    port, claim = claim_port(PREFECT_PORT)
    variables = {
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": f"http://127.0.0.1:{port},http://localhost:{port}",
        "PREFECT_SERVER_UI_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        "PREFECT_SERVER_DATABASE_TIMEOUT": "60",
    }
    address = ("--host", "127.0.0.1", "--port", str(port))
    command = [sys.executable, "-m", "prefect", "server", "start", *address]
    return spawn("prefect", command, variables, f"http://127.0.0.1:{port}", claim)


def _spawn_mlflow() -> Process:
    """The sender of journals, with the UI unless the user has a server of their own."""
    command = [sys.executable, "-m", "cluster.mlflow_server"]
    if _given_mlflow():
        return spawn("mlflow", command, {})
    port, claim = claim_port(MLFLOW_PORT)
    hosts = (f"127.0.0.1:{port}", f"localhost:{port}")
    variables = {
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_SERVER_ALLOWED_HOSTS": ",".join(hosts),
        "MLFLOW_SERVER_CORS_ALLOWED_ORIGINS": ",".join(f"http://{host}" for host in hosts),
    }
    return spawn("mlflow", [*command, str(port)], variables, f"http://127.0.0.1:{port}", claim)


def _spawn_worker() -> Process:
    command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", WORK_POOL]
    return spawn("worker", [*command, "--type", "process", "--name", "headrace"], {})


def answers(url: str) -> bool:
    """Whether an HTTP GET of this URL succeeds."""
    try:
        with urllib.request.urlopen(url, timeout=0.5) as reply:  # noqa: S310
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError, ValueError):
        return False


def _refresh_prefect() -> None:
    """Prefect keeps the settings of its import; let it see the new `PREFECT_API_URL`."""
    if context := sys.modules.get("prefect.context"):
        context.refresh_global_settings_context()


def alive(name: str) -> Process | None:
    """The background process of this name, if it runs."""
    found = _read().get(name)
    return found if found and found.alive else None


def _read() -> dict[str, Process]:
    path = home() / "services.json"
    try:
        return {k: Process.model_validate(v) for k, v in json.loads(path.read_text()).items()}
    except (FileNotFoundError, ValueError):
        return {}


def _write(processes: dict[str, Process]) -> None:
    text = json.dumps({k: v.model_dump() for k, v in processes.items()}, indent=1)
    write_atomically(home() / "services.json", text)
