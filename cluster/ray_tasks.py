"""The end of what Ray does for a run: what waits is dropped, what works may leave a checkpoint."""

import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

PATIENCE = 60.0
NO_TASK = ("ray::IDLE", "ray::DashboardAgent", "ray::RuntimeEnvAgent")


def end_tasks(references: Sequence[Any]) -> None:
    """Drop the tasks that wait, ask those that work to end, and wait until they have: a training
    leaves a checkpoint first. On other hosts than this they are interrupted by Ray, at some time.
    """
    if not references:
        return
    import ray

    for reference in reversed(references):  # those that wait first, or the next would begin
        ray.cancel(reference)
    for pid in _working(os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    ray.wait(list(references), num_returns=len(references), timeout=PATIENCE)


def _working(parent: int) -> Iterator[int]:
    """The processes below this one that carry out a task of Ray, which names them."""
    for listed in Path(f"/proc/{parent}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for pid in map(int, listed.read_text().split()):
                title = Path(f"/proc/{pid}/cmdline").read_text()
                if title.startswith("ray::") and not title.startswith(NO_TASK):
                    yield pid
                yield from _working(pid)
