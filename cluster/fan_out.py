"""One function over many items: in this process, or as Ray tasks on every node of the cluster.

for result in fan_out(work, items, at_once=None):
    ...
"""

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from cluster.environment import log_from_info
from cluster.errors import BadInput
from cluster.node_cache import release
from cluster.resources import Usage, charge, measured

Item = TypeVar("Item")
Result = TypeVar("Result")
# A task whose worker dies runs again this often; Ray counts.
RETRIES = 3
# Results that wait for an earlier one; more tasks are not started then.
AHEAD = 4


def fan_out(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    at_once: int | None = None,
    gpus: float = 0,
) -> Iterator[Result]:
    """The results of `work(item)` in the order of the items.

    `at_once` is how many run side by side: 1 stays in this process, None is one per CPU of the
    cluster, or where each takes `gpus`, as many as there are for. Without a Ray session, or with a
    single item, everything stays in this process. A task whose worker dies is run again by Ray,
    three times; an error of `work` is raised here as it is and stops the rest. Raises RuntimeError
    for a task whose workers keep dying, and BadInput for more GPUs than there are.
    """
    if at_once == 1 or len(items) < 2 or not _ray_is_up():
        return map(work, items)
    return _on_ray(work, items, at_once or _room(gpus), gpus)


def several_nodes() -> bool:
    """Whether this process is of a Ray session with more nodes than one."""
    return _ray_is_up() and sum(node["Alive"] for node in sys.modules["ray"].nodes()) > 1


def _ray_is_up() -> bool:
    # Not imported to ask: where nobody has started Ray there is none to be up.
    return "ray" in sys.modules and bool(sys.modules["ray"].is_initialized())


def _room(gpus: float) -> int:
    """How many tasks the cluster has CPUs, or GPUs, for at a time."""
    import ray

    there = ray.cluster_resources()
    if not gpus:
        return max(1, int(there.get("CPU", 1)))
    if not (room := int(there.get("GPU", 0) / gpus)):
        raise BadInput(f"gpus is {gpus}, and the Ray cluster has {there.get('GPU', 0):g} in all")
    return room


def _on_ray(
    work: Callable[[Item], Result], items: Sequence[Item], at_once: int, gpus: float
) -> Iterator[Result]:
    """The results in the items' order, by Ray tasks of which at most `at_once` run."""
    import ray

    remote = ray.remote(
        num_cpus=1, num_gpus=gpus, max_retries=RETRIES, scheduling_strategy="SPREAD"
    )
    task: Any = remote(_call)
    ordered, running = deque[Any](), list[Any]()
    try:
        for item in items:
            # Bounded twice: by what may run at once, and by the results that wait in Ray's memory
            # for an earlier one.
            while len(running) == at_once or len(ordered) == AHEAD * at_once:
                _, running = ray.wait(running) if running else ([], [])
                while ordered and ordered[0] not in running:
                    yield _result(ordered.popleft())
            running.append(task.remote(work, item))
            ordered.append(running[-1])
        while ordered:
            yield _result(ordered.popleft())
    finally:
        # After an error, or when the caller stops early, nobody takes the results of these, and
        # they would go on holding CPUs.
        for reference in ordered:
            ray.cancel(reference, force=True)


def _result(reference: Any) -> Any:
    """What a task returned, or the error that it raised; what it took is charged to the caller."""
    import ray
    from ray.exceptions import OutOfMemoryError, RayTaskError, WorkerCrashedError

    try:
        result, usage = ray.get(reference)
    except RayTaskError as error:
        cause = getattr(error, "cause", None)
        raise (cause if isinstance(cause, Exception) else error) from error
    except (WorkerCrashedError, OutOfMemoryError) as error:
        raise RuntimeError(
            f"the workers of a task died {RETRIES + 1} times, most likely for want of memory; "
            "fewer side by side need less: `--set placement.data_workers=1`"
        ) from error
    charge(usage)
    return result


def _call(work: Callable[[Item], Result], item: Item) -> tuple[Result, Usage]:
    log_from_info()
    try:
        with measured() as usage:
            result = work(item)
    finally:
        release()
    return result, usage
