"""Flows and a driver process for the tests of Ray, Prefect and their failures."""

import logging
import os
import signal
import sys
import time
from pathlib import Path

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.context import get_run_context
from prefect_ray.context import remote_options

import headrace  # noqa: F401
from cluster.ray_session import LazyRayTaskRunner, start

log = logging.getLogger("headrace.toy")


@task(cache_policy=NO_CACHE)
def add_one(x: int) -> int:
    log.info("adding one to %d", x)
    return x + 1


@task(cache_policy=NO_CACHE)
def environment() -> dict[str, str]:
    return {"executable": sys.executable, **os.environ}


@task(cache_policy=NO_CACHE)
def die_once(marker: Path) -> str:
    """Kill the worker the first time, finish the second."""
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


@flow(task_runner=LazyRayTaskRunner())
def idle_flow() -> bool:
    """Submits nothing; whether Ray runs."""
    import ray

    return ray.is_initialized()


@flow(task_runner=LazyRayTaskRunner())
def chain_flow(x: int) -> tuple[str, int, dict[str, str]]:
    """Futures passed on from task to task, and what a worker's environment is."""
    with remote_options(num_cpus=0, max_retries=2):
        result = add_one.submit(add_one.submit(x))
        found = environment.submit()
        return str(get_run_context().flow_run.id), result.result(), found.result()


@flow(task_runner=LazyRayTaskRunner())
def killed_worker_flow(marker: Path) -> str:
    with remote_options(num_cpus=1, max_retries=2):
        return die_once.submit(marker).result()


@flow(name="toy-scheduled")
def scheduled_flow(mark: str) -> None:
    """Leave a file that says which Python ran it, and where."""
    log.info("scheduled")
    (Path(os.environ["HEADRACE_HOME"]) / mark).write_text(f"{sys.executable} in {Path.cwd()}")


@flow(name="toy-failing")
def failing_flow() -> None:
    raise RuntimeError("out of order")


@flow(name="toy-lasting")
def lasting_flow(mark: str) -> None:
    """Tell the process and go on for ever."""
    (Path(os.environ["HEADRACE_HOME"]) / mark).write_text(str(os.getpid()))
    time.sleep(600)


@flow(name="headrace")
def endless_flow(mark: str) -> None:
    """Tell the flow run id and go on for ever."""
    (Path(os.environ["HEADRACE_HOME"]) / mark).write_text(str(get_run_context().flow_run.id))
    time.sleep(600)


def main() -> None:
    """A driver that is to be killed: print a worker's executable and pid, then wait."""
    start()
    import ray

    @ray.remote(num_cpus=0)
    def who() -> tuple[str, int]:
        return sys.executable, os.getpid()

    print(*ray.get(who.remote()), os.getpid(), flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main()
