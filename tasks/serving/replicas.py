"""The service on a cluster: replicas of it behind one address, as a Ray Serve deployment.

    headrace serve MODEL --replicas 4

A replica has the model and an engine of its own, and answers by the application that one process
answers by. Serve's proxies, one on each node with replicas, pass requests on, and answers piece by
piece as they are written; of two replicas drawn at random the one with fewer requests gets the next
(Mitzenmacher 2001). A replica whose engine ends is replaced. Beginnings that prompts share are kept
by each replica for itself.
"""

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette

from cluster.errors import BadInput, MissingExtra, StageFailed
from model.generation.engine import Capacity
from tasks.inference.generation import Precision
from tasks.serving.app import RETRY_AFTER_SECONDS, Limits
from tasks.serving.run import GRACE_SECONDS, at_work, listening
from tasks.serving.service import Service

APP = "headrace"
CONTROLLER = {"name": "SERVE_CONTROLLER_ACTOR", "namespace": "serve"}
SPARE = 64
"""Requests that a replica takes beyond those it has room for, to refuse them itself; and that a
proxy lets wait while all replicas have that many."""
ATTEMPTS = 3
START_SECONDS = 300
EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 (compared with)
log = logging.getLogger("headrace.serve")


@dataclass(frozen=True)
class Plan:
    """What every replica is to know. `threads` and `gpus` are those of each."""

    folder: Path
    name: str
    capacity: Capacity
    limits: Limits
    facts: Mapping[str, str]
    precision: Precision
    threads: int
    gpus: int
    key: str | None = field(repr=False)


class Replica:
    """One replica, in the words of Ray Serve."""

    def __init__(self, plan: Plan) -> None:
        import torch

        torch.set_num_threads(plan.threads)
        self.plan = plan
        self.service = Service(plan.folder, plan.name, plan.capacity, plan.facts, plan.precision)

    def __serve_build_asgi_app__(self) -> Starlette:
        """The application; the engine runs from its start on."""
        return at_work(self.service, self.plan.limits, self.plan.key)

    def check_health(self) -> None:
        """Raise RuntimeError once the engine has ended: then another replica takes the place."""
        if not self.service.healthy:
            raise RuntimeError("the engine has ended")


@contextlib.contextmanager
def deployed(plan: Plan, replicas: int, host: str, port: int) -> Iterator[str]:
    """The URL of so many replicas on the Ray session that this process has joined; they are gone
    when the block ends, after what they were answering, for which they have 30 seconds.

    Raises MissingExtra without Ray Serve, BadInput for an address that cannot be had or a cluster
    on which Serve runs already, and StageFailed, with what Serve says, for replicas that do not
    start.
    """
    serve = _library()
    with listening(host, port) as socket:
        port = socket.getsockname()[1]
    _check_alone()
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    seconds = plan.limits.seconds + GRACE_SECONDS
    url = f"http://{_head() if host in EVERYWHERE else host}:{port}"
    try:
        _start(serve, {"host": host, "port": port, "request_timeout_s": seconds})
        try:
            serve.run(_application(serve, plan, replicas), name=APP)
        except RuntimeError as error:
            raise StageFailed(f"the replicas do not start: {error}") from error
        _wait_for(url)
        yield url
    finally:
        serve.delete(APP)
        serve.shutdown()


def _start(serve: Any, address: dict[str, Any]) -> None:
    from ray.exceptions import RayActorError

    try:
        serve.start(http_options=address, logging_config={"log_level": "WARNING"})
    except (TimeoutError, RayActorError) as error:  # its controller goes on, with another proxy
        log.warning("Ray Serve's proxy is slow to start: %s", error)


def _wait_for(url: str) -> None:
    """Wait until requests are taken. Raises StageFailed when that does not happen."""
    import httpx

    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{url}/ready").status_code == 200:
                return
        time.sleep(0.2)
    raise StageFailed(f"{url} takes no requests after {START_SECONDS} s; see Ray Serve's logs")


def _application(serve: Any, plan: Plan, replicas: int) -> Any:
    room = plan.capacity.rows + plan.capacity.waiting
    decorated = serve.deployment(
        name=APP,
        num_replicas=replicas,
        # A replica that is full says so itself, as one process does: 429, and when to come again.
        max_ongoing_requests=room + SPARE,
        max_queued_requests=SPARE,
        backpressure_config={"status_code": 429, "retry_after_s": RETRY_AFTER_SECONDS},
        ray_actor_options={"num_cpus": plan.threads, "num_gpus": plan.gpus},
        graceful_shutdown_wait_loop_s=0.5,
        graceful_shutdown_timeout_s=GRACE_SECONDS,
        max_constructor_retry_count=ATTEMPTS,
    )
    return decorated(serve.ingress()(Replica)).bind(plan)


def _library() -> Any:
    try:
        from ray import serve
    except ImportError as error:
        raise MissingExtra(
            f"--replicas needs Ray Serve ({error}): `uv pip install 'headrace[serve]'`"
        ) from error
    return serve


def _check_alone() -> None:
    """Serve has one address for a cluster, which cannot be changed while it runs."""
    import ray

    try:
        ray.get_actor(**CONTROLLER)
    except ValueError:  # there is none
        return
    raise BadInput(
        "Ray Serve runs on this cluster already, at an address of its own: end it with "
        "`serve shutdown`, or take another cluster"
    )


def _head() -> str:
    """The address of the cluster's head, on which there is a proxy always."""
    import ray

    heads = (n for n in ray.nodes() if "node:__internal_head__" in n["Resources"])
    return str(next(heads)["NodeManagerAddress"])
