"""What Ray's workers on this machine are doing for this process, and its orderly end."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

PATIENCE = 60.0
IDLE = ("ray::IDLE", "ray::DashboardAgent", "ray::RuntimeEnvAgent")


def end_tasks() -> bool:
    """Send SIGTERM to the local workers that carry out a task of this process, and wait for them:
    a training leaves a checkpoint first. Whether all ended in time.
    """
    busy = list(_busy())
    for pid in busy:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE
    while any(_works(pid) for pid in busy):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _busy() -> Iterator[int]:
    """The processes below this one that carry out a task of Ray."""
    queue = [os.getpid()]
    while queue:
        children = Path(f"/proc/{queue.pop()}/task").glob("*/children")
        for listed in children:
            with contextlib.suppress(OSError):
                found = [int(pid) for pid in listed.read_text().split()]
                queue += found
                yield from (pid for pid in found if _works(pid))


def _works(pid: int) -> bool:
    """Whether a process is a worker of Ray with a task, which names it."""
    try:
        title = Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False
    return title.startswith("ray::") and not title.startswith(IDLE)
