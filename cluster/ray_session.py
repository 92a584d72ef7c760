"""Ray, started with the first task that needs it and ended with the process that started it.

    @flow(task_runner=LazyRayTaskRunner())

With `RAY_ADDRESS` set, Headrace connects to that cluster and leaves it running.
"""

import atexit
import os
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

from prefect.task_runners import TaskRunner
from prefect_ray.task_runners import PrefectRayFuture, RayTaskRunner

from cluster.environment import log_from_info, prepare, worker_variables
from cluster.processes import temporary_folder

OBJECT_STORE_BYTES = 200_000_000
_starting = threading.Lock()


class LazyRayTaskRunner(RayTaskRunner):
    """A RayTaskRunner that starts Ray when the first task is submitted.

    A flow that finds everything cached never pays for Ray. Tasks take the options of
    `prefect_ray.context.remote_options`.
    """

    def __enter__(self) -> "LazyRayTaskRunner":
        TaskRunner.__enter__(self)
        return self

    def __exit__(self, *error: Any) -> None:
        TaskRunner.__exit__(self, *error)

    def submit(self, *arguments: Any, **options: Any) -> PrefectRayFuture[Any]:
        """Submit a task, starting Ray if it is not running."""
        start()
        return super().submit(*arguments, **options)

    @staticmethod
    def _run_prefect_task(*upstream: Any, **options: Any) -> Any:
        log_from_info()
        return RayTaskRunner._run_prefect_task(*upstream, **options)


def start() -> None:
    """Start or join Ray unless this process has it already."""
    prepare()
    import ray

    with _starting:
        if ray.is_initialized():
            return
        ours = signal.getsignal(signal.SIGTERM)
        common: dict[str, Any] = {
            "namespace": "headrace",
            "log_to_driver": False,
            "logging_level": "WARNING",
        }
        if address := os.environ.get("RAY_ADDRESS"):
            ray.init(address=address, runtime_env={"env_vars": worker_variables()}, **common)
            _keep(ours)
            return
        # Local workers inherit this process's variables. A runtime_env would keep Ray from using
        # the workers that it starts ahead, and each first task would wait for another.
        _remove_dead_sessions()
        ray.init(
            address="local",
            num_cpus=len(os.sched_getaffinity(0)),
            include_dashboard=False,
            object_store_memory=OBJECT_STORE_BYTES,
            _temp_dir=str(_session_folder()),
            **common,
        )
        _keep(ours)
        atexit.register(stop)


def _keep(handler: Any) -> None:
    """Ray has taken SIGTERM for itself, to exit with status 15 whatever a caller has set up."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)


def stop() -> None:
    """End this process's Ray session and remove its folder; nothing happens when there is none."""
    import ray

    if ray.is_initialized():
        ray.shutdown()
    _remove_dead_sessions(own=True)


def _session_folder() -> Path:
    """Below a private folder, as Ray opens its own to everybody.

    Ray's socket names may have 107 characters, of which it leaves 40 for this path.
    """
    return temporary_folder() / "ray"


def _remove_dead_sessions(own: bool = False) -> None:
    """Remove the folders of sessions whose driver is gone; Ray keeps them for ever."""
    for session in _session_folder().glob("session_*_*"):
        pid = int(session.name.rsplit("_", 1)[1])
        if not Path(f"/proc/{pid}").exists() or (own and pid == os.getpid()):
            shutil.rmtree(session, ignore_errors=True)
