"""The daemons of a Ray session that one process starts for itself: those that it needs.

    with only_needed():
        ray.init(address="local", ...)

Ray starts four more, of which each imports Ray anew: together 5 CPU seconds of every run, and on a
busy machine the reason that the session does not come up in Ray's 30 seconds. None has anything to
do here: the autoscaler's monitor, as there is nothing to scale; the monitor of logs, as they are
not sent to the driver; the dashboard, which Ray starts without its pages, too; and, on the node,
the dashboard's agent, which cannot be left out (the raylet ends without it) and runs without its
modules, as in Ray's own minimal installation.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

AGENT = "dashboard_agent"
BARE_AGENT = """
import runpy, sys
import ray.dashboard.modules
ray.dashboard.modules.__path__ = []
sys.argv = [*sys.argv[1:], "--minimal"]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@contextmanager
def only_needed() -> Iterator[None]:
    """Within it `ray.init` starts no other daemons. What it replaces is private to Ray, whose
    versions are capped for that; `tests/cluster/test_ray_session.py` sees what runs.
    """
    from ray._private import parameter, services

    command = services._build_python_executable_command_memory_profileable

    def command_of(component: str, *arguments: Any, **options: Any) -> list[str]:
        bare = ["-c", BARE_AGENT] if component == AGENT else []
        return [*command(component, *arguments, **options), *bare]

    without: dict[str, Any] = {"include_log_monitor": False, "no_monitor": True}
    replaced: list[tuple[Any, str, Any]] = [
        (parameter, "RayParams", partial(parameter.RayParams, **without)),
        (services, "start_api_server", lambda *_, **__: (None, None)),
        (services, command.__name__, command_of),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in replaced]
    for owner, name, replacement in replaced:
        setattr(owner, name, replacement)
    try:
        yield
    finally:
        for owner, name, original in before:
            setattr(owner, name, original)
