"""Ray, started with the first task that needs it and ended with the process that started it.

    @flow(task_runner=LazyRayTaskRunner())

With `RAY_ADDRESS` set, Headrace connects to that cluster and leaves it running. A local session
that lost one of its daemons takes no more tasks: `died` tells, `restart` starts another.
"""

import atexit
import contextlib
import logging
import os
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import psutil
from prefect.task_runners import TaskRunner
from prefect_ray.task_runners import PrefectRayFuture, RayTaskRunner
from ray.job_config import JobConfig

from cluster.environment import (
    ROOT,
    default,
    forget,
    is_secret,
    log_from_info,
    prepare,
    put,
    worker_variables,
)
from cluster.errors import BadInput, StageFailed
from cluster.home import APART, apart, home
from cluster.homes import check_store, check_there_is_a_store, without_home
from cluster.machine import cpus
from cluster.named_servers import check_ray
from cluster.processes import end_all_with, tail, temporary_folder
from cluster.ray_daemons import only_needed
from cluster.ray_node import become_node

OBJECT_STORE_BYTES = 200_000_000
START_ATTEMPTS = 5
COMMON: dict[str, Any] = {
    "namespace": "headrace",
    "log_to_driver": False,
    "logging_level": "WARNING",
}
_starting = threading.Lock()
_daemons: list[psutil.Process] = []
log = logging.getLogger("headrace.run")


class OursFirst(JobConfig):
    """Lets the workers find Headrace before what lies in the driver's folder.

    Ray puts the paths it is given, and then that folder, at the front of theirs, one by one.
    """

    def _serialize(self) -> Any:
        self._py_driver_sys_path.append(ROOT)
        return super()._serialize()


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


def start(checked: bool = True) -> None:
    """Start or join Ray unless this process has it already. A cluster that is joined is `checked`:
    its nodes must share a home, or a store.

    Raises BadInput when the cluster that `RAY_ADDRESS` names cannot be joined, and StageFailed when
    a local session does not start.
    """
    prepare()
    import ray

    with _starting:
        if ray.is_initialized():
            return
        ours = signal.getsignal(signal.SIGTERM)
        forget(APART)
        if address := os.environ.get("RAY_ADDRESS"):
            check_ray()
            become_node(address)
            if os.environ.get("HEADRACE_OWN_HOMES"):
                put(APART, str(home()))
            _join(address)
            if checked:
                _find_what_nodes_share(address)
            _keep(ours)
            return
        # Local workers inherit this process's variables. The server was asked for its version by
        # the driver; a stage must not fail because the server is being started again.
        default("PREFECT_CLIENT_SERVER_VERSION_CHECK_ENABLED", "false")
        _remove_dead_sessions()
        _start_patiently()
        _keep(ours)
        _daemons[:] = _children()
        atexit.register(stop)


def _keep(handler: Any) -> None:
    """Ray has taken SIGTERM for itself, to exit with status 15 whatever a caller has set up."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)


def stop() -> None:
    """End this process's Ray session and remove its folder; nothing happens when there is none."""
    import ray

    _daemons.clear()
    if ray.is_initialized():
        ray.shutdown()
    _remove_dead_sessions(own=True)


def died() -> bool:
    """Whether the local session lost a daemon, without which it runs nothing more."""
    return not all(map(_runs, _daemons))


def restart() -> None:
    """Replace a session that died. What its tasks had not returned is lost."""
    log.warning("Ray's daemon died; Ray is started again. The end of its log:\n%s", _log())
    for daemon in _daemons:
        with contextlib.suppress(psutil.NoSuchProcess):
            daemon.kill()  # an orderly end would wait for those that are gone
        # Workers finish their task before they look whether it is there.
        end_all_with("RAY_RAYLET_PID", str(daemon.pid))
    stop()
    start()


def _join(address: str) -> None:
    import ray

    try:
        # Ray's client, `ray://`, keeps the driver's folder off the workers' path.
        config: Any = None if "://" in address else OursFirst()
        ray.init(address=address, runtime_env=runtime_env(), job_config=config, **COMMON)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise BadInput(
            f"RAY_ADDRESS is {address}, and that Ray cluster cannot be joined: {error}\n"
            "Start it (`ray start --head`), or `unset RAY_ADDRESS` to use this machine alone"
        ) from error


def _find_what_nodes_share(address: str) -> None:
    """See whether the nodes have homes of their own. Then the workers are told so, by joining
    again, and the store has to be between them.
    """
    import ray

    try:
        if not apart() and (blind := without_home()):
            check_there_is_a_store(blind)
            put(APART, str(home()))
            ray.shutdown()
            _join(address)
        if apart():
            check_store()
    except BaseException:
        ray.shutdown()
        raise


def runtime_env() -> dict[str, Any]:
    """What workers on other machines get of the driver's variables.

    Ray writes `env_vars` to logs and command lines. Secrets come with a function that each worker
    fetches at its start from the memory of Ray's head.
    """
    passed = worker_variables()
    secrets = {name: value for name, value in passed.items() if is_secret(name, value)}
    plain = {"env_vars": {k: v for k, v in passed.items() if k not in secrets}}

    def take_secrets() -> None:
        os.environ.update(secrets)

    return plain | ({"worker_process_setup_hook": take_secrets} if secrets else {})


def _start_patiently() -> None:
    """Start a local session; Ray's daemons have 30 seconds, too few on a machine that is busy."""
    import ray

    for attempt in range(1, START_ATTEMPTS + 1):
        try:
            # A runtime_env would keep Ray from using the workers that it starts ahead, and each
            # first task would wait for another.
            with only_needed():
                ray.init(
                    address="local",
                    num_cpus=cpus(),
                    include_dashboard=False,
                    object_store_memory=OBJECT_STORE_BYTES,
                    _temp_dir=str(_session_folder()),
                    job_config=OursFirst(),
                    **COMMON,
                )
            return
        except Exception as error:  # Ray raises plain exceptions here
            log.warning("Ray did not start (attempt %d of %d): %s", attempt, START_ATTEMPTS, error)
            told, end = error, _log()
            ray.shutdown()
            _remove_dead_sessions(own=True)
    raise StageFailed(
        f"Ray did not start in {START_ATTEMPTS} attempts: {told}\nThis machine may be too busy, or "
        f"out of memory or of room in {_session_folder()}. The same command tries again. The end "
        f"of Ray's log:\n{end}"
    )


def _log() -> str:
    """The end of the log of this process's session; its folder goes with it."""
    logs = _session_folder().glob(f"session_*_{os.getpid()}/logs/raylet.out")
    return "\n".join(tail(str(path), 3) for path in logs) or "(no log)"


def _children() -> list[psutil.Process]:
    """The raylet and the GCS server of this process; those of an attempt to start that failed stay
    its children, dead.
    """
    daemons = {(os.getpid(), name) for name in ("raylet", "gcs_server")}
    running = psutil.process_iter(["ppid", "name"])
    found = [child for child in running if (child.info["ppid"], child.info["name"]) in daemons]
    return [child for child in found if _runs(child)]


def _runs(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _session_folder() -> Path:
    """Below a private folder, as Ray opens its own to everybody. A container that shares that knows
    no process outside, and must not take it for dead: each namespace of processes has its own.

    Ray's socket names may have 107 characters, of which it leaves 40 for this path.
    """
    return temporary_folder() / f"ray-{Path('/proc/self/ns/pid').stat().st_ino:x}"


def _remove_dead_sessions(own: bool = False) -> None:
    """Remove the folders of sessions whose driver is gone; Ray keeps them for ever."""
    for session in _session_folder().glob("session_*_*"):
        pid = int(session.name.rsplit("_", 1)[1])
        if not psutil.pid_exists(pid) or (own and pid == os.getpid()):
            shutil.rmtree(session, ignore_errors=True)
