"""The end of what Ray does for a run: what waits is dropped, what works may leave a checkpoint."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import psutil

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
    for process in _working():
        with contextlib.suppress(psutil.Error):
            process.terminate()
    ray.wait(list(references), num_returns=len(references), timeout=PATIENCE)


def _working() -> Iterator[psutil.Process]:
    """The processes below this one that carry out a task of Ray, which names them."""
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            title = "".join(process.cmdline()[:1])
            if title.startswith("ray::") and not title.startswith(NO_TASK):
                yield process
