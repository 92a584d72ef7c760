"""What one node tells of itself, for `headrace doctor`. It runs there, as a Ray task.

Whatever goes wrong is part of the report: a sentence in place of "", which is "nothing wrong".
"""

import hashlib
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cluster.environment import ROOT
from cluster.machine import interface_of

LIBRARIES = ("torch", "ray", "deepspeed", "prefect", "mlflow")
PACKAGES = ("flows", "tasks", "model", "cluster")
STEP_S = 30.0  # that one question may take; clients of object stores go on trying for minutes


@dataclass(frozen=True)
class Questions:
    """What the nodes are asked about: services by name, each with a URL that answers and the
    headers of the user's credentials; the store's URL; a file that the driver left in the home.
    """

    services: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict, repr=False)
    store: str | None = None
    mark: str = ""


@dataclass(frozen=True)
class NodeReport:
    """One node. `services` and `resolved` are by the service's name; a service that answers has
    its HTTP status. `gpus` are those that torch sees, `port` was free.
    """

    host: str
    address: str
    interface: str | None
    versions: dict[str, str]
    home: str
    home_error: str
    sees_mark: bool
    store_error: str
    resolved: dict[str, str]
    services: dict[str, int | str]
    gpus: tuple[str, ...]
    gpu_error: str
    port: int


def report(asked: Questions, address: str, gpus: int) -> NodeReport:
    """This node, which Ray knows by an address and believes to have so many GPUs."""
    from cluster.home import home

    store = asked.store
    names, gpu_error = _gpus() if gpus else ((), "")
    return NodeReport(
        host=socket.gethostname(),
        address=address,
        interface=interface_of(address),
        versions=versions(),
        home=os.environ.get("HEADRACE_HOME", "~/.headrace"),
        home_error=tried(lambda: _write_and_remove(home() / f".doctor-{uuid.uuid4().hex}")),
        sees_mark=tried(lambda: (home() / asked.mark).stat()) == "",
        store_error=tried(lambda: _use_store(store)) if store else "",
        resolved={name: _resolved(url) for name, (url, _) in asked.services.items()},
        services={name: _status(*where) for name, where in asked.services.items()},
        gpus=names,
        gpu_error=gpu_error,
        port=_free_port(address),
    )


def versions() -> dict[str, str]:
    """Of Python, of Headrace with what its source hashes to, and of the libraries that matter."""
    found = {"python": ".".join(map(str, sys.version_info[:3])), "headrace": _source()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "missing"
    return found


def _source() -> str:
    total = hashlib.sha256()
    for path in sorted(path for name in PACKAGES for path in (Path(ROOT) / name).rglob("*.py")):
        total.update(path.read_bytes())
    return f"source {total.hexdigest()[:8]}"


def tried(step: Callable[[], Any]) -> str:
    """What went wrong in a step, in a line; "" where nothing did, and it took its time at most."""
    told: list[str] = []

    def run() -> None:
        try:
            step()
            told.append("")
        except Exception as error:  # whatever a file system or a driver may raise
            first = (str(error).strip() or "no reason given").splitlines()[0]
            told.append(f"{type(error).__name__}: {first}")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(STEP_S)
    return told[0] if told else f"no answer in {STEP_S:.0f} seconds"


def _write_and_remove(path: Path) -> None:
    path.write_text("here")
    path.unlink()


def _use_store(url: str) -> None:
    from cluster.object_store import ObjectStore

    store, name = ObjectStore(url), f".doctor-{uuid.uuid4().hex}"
    store.files.makedirs(store.root, exist_ok=True)
    store.files.pipe_file(f"{store.root}/{name}", b"here")
    if store.files.cat_file(f"{store.root}/{name}") != b"here":
        raise OSError("what was written is not what is read")
    store.files.rm_file(f"{store.root}/{name}")


def _resolved(url: str) -> str:
    try:
        return socket.gethostbyname(urlsplit(url).hostname or "")
    except OSError as error:
        return f"unknown ({error})"


def _status(url: str, headers: dict[str, str]) -> int | str:
    import httpx

    try:
        return httpx.get(url, headers=headers, timeout=STEP_S / 3).status_code
    except httpx.HTTPError as error:
        return f"{type(error).__name__}: {error}"


def _gpus() -> tuple[tuple[str, ...], str]:
    found: list[str] = []

    def ask() -> None:
        import torch

        count = torch.cuda.device_count()
        found.extend(torch.cuda.get_device_name(index) for index in range(count))
        torch.zeros(1, device="cuda").item()

    wrong = tried(ask)
    return tuple(found), wrong


def _free_port(address: str) -> int:
    with socket.socket() as one:
        try:
            one.bind((address, 0))
        except OSError:
            one.bind(("", 0))
        return int(one.getsockname()[1])


def clock() -> float:
    """Seconds since 1970, as this node counts."""
    return time.time()


def sum_of_ones(rank: int, size: int, meeting: str, backend: str) -> int:
    """What the ones of all nodes add up to, in a process group that meets at `address:port`."""
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    from cluster.process_group import choose_interface

    choose_interface()
    limit = timedelta(seconds=STEP_S * 2)
    dist.init_process_group(
        backend, init_method=f"tcp://{meeting}", rank=rank, world_size=size, timeout=limit
    )
    try:
        one = torch.ones(1, device="cuda" if backend == "nccl" else "cpu")
        dist.all_reduce(one)
        return int(one.item())
    finally:
        dist.destroy_process_group()
