"""The local services: one Prefect server, the MLflow UI, and the worker of scheduled runs.

`up` starts what is missing and reuses what runs; `down` ends it; `status` tells. What was started
is in `$HEADRACE_HOME/services.json`; one that dies is started again by every process that called
`up`, as long as that lives, and the server and the worker look after each other. With
`PREFECT_API_URL` or an http `MLFLOW_TRACKING_URI` set, those are used and nothing is started in
their place.
"""

import errno
import json
import logging
import os
import sys
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cluster import watchdog
from cluster.environment import forget, given, prepare, put
from cluster.errors import MENDED_ON_THE_MACHINE, StageFailed
from cluster.files import write_atomically
from cluster.home import home
from cluster.keys import OURS, authorization, link
from cluster.locks import lock
from cluster.named_servers import (
    PROBE_SECONDS,
    check_no_login,
    check_prefect,
    given_mlflow,
    ray_status,
    store_shown,
    tell_of_mlflow,
)
from cluster.processes import (
    Process,
    end_orphans,
    find,
    listen,
    spawn,
    stop,
    tail,
)

PORTS = {"prefect": 4200, "mlflow": 5000}
START_SECONDS = 180.0
WORK_POOL = "headrace"
HEALTH = {"prefect": "/api/health", "mlflow": "/health"}
# MLflow's pages open on those for agents unless told otherwise.
TRAINING_VIEW = "workflowType=machine_learning"
PAGES = {"prefect": "", "mlflow": f"#/experiments?{TRAINING_VIEW}"}
HEADERS = "PREFECT_CLIENT_CUSTOM_HEADERS"
PORT_SECONDS = 20.0
log = logging.getLogger("headrace.services")


# How the command lines of the processes begin that a lost or damaged `services.json` told of.
COMMANDS = {
    "prefect": ("-m", "cluster.prefect_process"),
    "mlflow": ("-m", "cluster.mlflow_server"),
    "worker": ("-m", "cluster.prefect_worker"),
}
ROOM, FILES = 1 << 22, 32  # bytes and files that a service's start takes
_watching: list[threading.Thread] = []


class ServiceFailed(StageFailed):
    """A local service did not start; the message ends with its log."""


@dataclass(frozen=True)
class Services:
    """The addresses of what runs talk to."""

    prefect_ui: str
    mlflow_ui: str | None


def up(wait_for_prefect: bool = True, wait_for_mlflow: bool = False) -> Services:
    """Start or find the services and point this process at them (`PREFECT_API_URL`).

    Several processes may call it at once: one server is started. Raises ServiceFailed with the end
    of the log when a service that is waited for does not come up, and BadInput when the user's own
    Prefect server does not answer.
    """
    prepare()
    own_mlflow = given_mlflow()
    with lock(home() / "locks" / "services", timeout=START_SECONDS):
        _recover()
        if (prefect := given_prefect()) is None:
            server = alive("prefect") or _start("prefect")
            prefect = str(server.url)
            for name, value in _as_client(prefect).items():
                put(name, value)
            if wait_for_prefect:
                wait("prefect")
        else:
            told = os.environ.get(HEADERS, "")
            # What a parent process or an earlier call set is for another server.
            if OURS in told and f'"{prefect}"' not in told:
                del os.environ[HEADERS]
            check_prefect()
        tell_of_mlflow(own_mlflow)
        mlflow = _mlflow_of(store_shown()) or _start("mlflow")
        if "worker" in _read() and alive("worker") is None:
            _start("worker")
    watch()
    # The lock is free by now: who does not need MLflow does not wait with us.
    if wait_for_mlflow and mlflow.url:
        wait("mlflow")
    _refresh_prefect()
    return Services(prefect, own_mlflow or mlflow.url)


def watch(every: float = watchdog.POLL_SECONDS) -> None:
    """Start services that die again, as long as this process lives; a look so often, in seconds."""
    if not (_watching and _watching[0].is_alive()):  # it does not live on in a forked process
        _watching[:] = [watchdog.keep(_read, _restart, every)]


def _mlflow_of(store: str | None) -> Process | None:
    """The MLflow process that runs, unless it was started for another tracking store: that one may
    have no page of its own, or not the credentials. It is ended then. The caller holds the lock.
    """
    process = alive("mlflow")
    if process and process.store != store:
        stop(process)
        return None
    return process


def wait(name: str) -> None:
    """Wait until a service that was started answers. Raises ServiceFailed with its log's end."""
    process, deadline = _read()[name], time.monotonic() + START_SECONDS
    # A server that starts lets who asks wait: to ask often would only make its queue longer.
    while not answers(name, str(process.url), PROBE_SECONDS, ours=True):
        if not process.alive or time.monotonic() > deadline:
            what = "did not answer in time" if process.alive else "ended at its start"
            if _is_full(home()):
                remedy = MENDED_ON_THE_MACHINE[errno.ENOSPC]
                raise ServiceFailed(f"the {name} server {what}; {home()}: {remedy}")
            raise ServiceFailed(
                f"the {name} server at {process.url} {what}; the end of {process.log}:\n"
                f"{tail(process.log)}"
            )
        time.sleep(0.1)


def _is_full(folder: Path) -> bool:
    """Whether a service has no room for its database and its log, or for a few files more."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize < ROOM or (disk.f_files > 0 and disk.f_favail < FILES)


def start_worker() -> Process:
    """Start the worker that runs scheduled deployments; later calls of `up` restart it."""
    with lock(home() / "locks" / "services", timeout=START_SECONDS):
        return alive("worker") or _start("worker")


def down() -> dict[str, str]:
    """Stop the worker, the MLflow UI and the Prefect server; what became of each.

    Nobody starts them again before the next `up`, which starts the worker too if there was one.
    """
    with lock(home() / "locks" / "services", timeout=START_SECONDS):
        _recover()
        found = _read()
        # The worker before the server that it asks for work.
        report: dict[str, str] = {
            name: stop(found[name]) for name in ("worker", "mlflow", "prefect") if name in found
        }
        # A record that is no process: `up` knows by it that there was a worker.
        worker = found["worker"].model_copy(update={"pid": 0}) if "worker" in found else None
        _write({"worker": worker} if worker else {})
    forget("PREFECT_API_URL")
    forget(HEADERS)
    return report


def status() -> dict[str, dict[str, Any]]:
    """`url`, `pid` (of what Headrace started) and `healthy` of prefect, mlflow and ray.

    Takes milliseconds and imports none of them.
    """
    given_urls = {"prefect": given_prefect(), "mlflow": given_mlflow()}
    found = {name: _server_status(name, url) for name, url in given_urls.items()}
    return found | {"ray": ray_status()}


def sign_in() -> dict[str, str]:
    """Links that open the pages of the services that `up` started, signed in, each once; a server
    of the user's own has its own ways.
    """
    ours = {name: str(process.url) for name, process in _read().items() if process.url}
    links = {name: link(url, PAGES[name]) for name, url in ours.items()}
    given_urls = {"prefect": given_prefect(), "mlflow": given_mlflow()}
    return links | {name: url for name, url in given_urls.items() if url}


def _server_status(name: str, url: str | None) -> dict[str, Any]:
    process = None if url else alive(name)
    url = url or (process.url if process else None)
    healthy = url is not None and answers(name, url, ours=process is not None)
    return {"url": url, "pid": process.pid if process else None, "healthy": healthy}


def given_prefect() -> str | None:
    """The user's Prefect server, not ours, even if a parent process set its address."""
    api, ours = given("PREFECT_API_URL"), _read().get("prefect")
    if api is None or (ours and api == f"{ours.url}/api"):
        return None
    check_no_login("PREFECT_API_URL", api, "PREFECT_API_AUTH_STRING=user:password")
    return api.removesuffix("/api")


def _start(name: str) -> Process:
    """Start a service and record it, at the address it had. The caller holds the lock."""
    dead = _read().get(name)
    if dead and name != "worker":  # the worker's children are runs, which may go on
        end_orphans(dead)
    spawners = {"prefect": _spawn_prefect, "mlflow": _spawn_mlflow, "worker": _spawn_worker}
    process = spawners[name](urlsplit(dead.url).port if dead and dead.url else None)
    _write(_read() | {name: process})
    return process


def _restart(name: str, dead: Process) -> None:
    """Start a service again that died, unless somebody else has, or has taken it down."""
    with lock(home() / "locks" / "services", timeout=START_SECONDS):
        # The watch looked without the lock: `down` or another watch may have been here since.
        if _read().get(name) != dead:
            return
        process = _start(name)
    log.warning("the %s service died and is started again", name)
    if process.url != dead.url:
        log.error("%s was taken by another program; it is now at %s", dead.url, process.url)


def _spawn_prefect(port: int | None) -> Process:
    variables = {
        "PREFECT_SERVER_UI_API_URL": "/api",
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        "PREFECT_SERVER_DATABASE_TIMEOUT": "60",
        # Which run of a deployment has its one place must outlive the server: a run that cannot
        # renew its own is ended.
        "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": (
            "prefect.server.concurrency.lease_storage.filesystem"
        ),
        "PREFECT_SERVER_DEPLOYMENTS_CONCURRENCY_SLOT_WAIT_SECONDS": "5",
    }
    return _spawn_server("prefect", port, variables)


def _spawn_mlflow(port: int | None) -> Process:
    """The sender of journals, with the UI unless the user has a server of their own."""
    if given_mlflow():
        process = spawn("mlflow", [sys.executable, *COMMANDS["mlflow"]], {})
    else:
        variables = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        process = _spawn_server("mlflow", port, variables)
    return process.model_copy(update={"store": store_shown()})


def _spawn_server(name: str, port: int | None, variables: dict[str, str]) -> Process:
    """Start a server on the loopback, on the port that it had: one that died may be holding that
    for a moment yet, as may what it started.
    """
    listening = listen(port, PORT_SECONDS) if port else listen(PORTS[name])
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    # The socket that listens is handed on: meanwhile clients queue there and are not refused.
    handle = listening.detach()
    command = [sys.executable, *COMMANDS[name], str(urlsplit(url).port), str(handle)]
    return spawn(name, command, variables, url, handle)


def _spawn_worker(_: int | None) -> Process:
    """The worker; it may be the server that starts it again, which is no client of its own."""
    server = None if given_prefect() else alive("prefect")
    variables = _as_client(str(server.url)) if server else {}
    return spawn("worker", [sys.executable, *COMMANDS["worker"]], variables)


def _as_client(server: str) -> dict[str, str]:
    """The variables by which Prefect's clients find our server, and it knows them. Of all that
    tells it who they are, its websockets send this alone.
    """
    who = json.dumps({"Authorization": authorization(server), "For": server})
    return {"PREFECT_API_URL": f"{server}/api", HEADERS: who}


def answers(name: str, url: str, timeout: float = 0.5, ours: bool = False) -> bool:
    """Whether a service says within so many seconds that it is well; `ours` asks for a password."""
    headers = {"Authorization": authorization(url)} if ours else {}
    try:
        request = urllib.request.Request(url + HEALTH[name], headers=headers)  # noqa: S310
        with urllib.request.urlopen(request, timeout=timeout) as reply:  # noqa: S310
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
    return _recorded() or {}


def _recorded() -> dict[str, Process] | None:
    """What `services.json` says; None where it is missing or damaged."""
    path = home() / "services.json"  # a home that is none is another matter than a damaged record
    try:
        text = path.read_text()
        return {k: Process.model_validate(v) for k, v in json.loads(text).items()}
    except (FileNotFoundError, ValueError, AttributeError):
        return None


def _recover() -> None:
    """Where the record is missing or damaged, find what runs. The caller holds the lock."""
    if _recorded() is None:
        found = {name: find(command) for name, command in COMMANDS.items()}
        _write({name: process for name, process in found.items() if process})


def _write(processes: dict[str, Process]) -> None:
    text = json.dumps({k: v.model_dump() for k, v in processes.items()}, indent=1)
    write_atomically(home() / "services.json", text)
