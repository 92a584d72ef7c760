"""One function over many items: in this process, or as Ray tasks on every node of the cluster.

for result in fan_out(work, items, at_once=None):
    ...
"""

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def fan_out(
    work: Callable[[Item], Result], items: Sequence[Item], at_once: int | None = None
) -> Iterator[Result]:
    """The results of `work(item)` in the order of the items.

    `at_once` is how many run side by side: 1 stays in this process, None is one per CPU of the
    cluster. Without a Ray session, or with a single item, everything stays in this process. A task
    whose worker dies is run again by Ray; an error of `work` is raised here and stops the rest.
    """
    if at_once == 1 or len(items) < 2 or not _ray_is_up():
        return map(work, items)
    return _on_ray(work, items, at_once)


def _ray_is_up() -> bool:
    return "ray" in sys.modules and bool(sys.modules["ray"].is_initialized())


def _on_ray(
    work: Callable[[Item], Result], items: Sequence[Item], at_once: int | None
) -> Iterator[Result]:
    import ray
    from ray.exceptions import RayTaskError

    # Twice the CPUs, so that none is idle while the oldest task, whose result is next, is at work.
    at_once = at_once or 2 * int(ray.cluster_resources().get("CPU", 1))
    task: Any = ray.remote(num_cpus=1)(_call)
    waiting = deque(items)
    running: deque[Any] = deque()
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                running.append(task.remote(work, waiting.popleft()))
            yield ray.get(running.popleft())
    except RayTaskError as error:
        raise error.cause from error
    finally:
        for reference in running:
            ray.cancel(reference, force=True)


def _call(work: Callable[[Item], Result], item: Item) -> Result:
    from cluster.environment import log_from_info

    log_from_info()
    return work(item)
