"""Run a function on several workers at once, as ranks of one process group (Ray Train).

    run_on_workers(partial(train, job, placement), workers=4, gpus=1, folder=scratch / "ray_train")

The function keeps its own checkpoints: when a worker dies, all are started again and it is called
again. Ray must be running, and the caller must hold none of the CPUs that the workers need.
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from cluster.environment import default
from cluster.handover import obtain, publish, storage, withdraw
from cluster.node_cache import release
from cluster.resources import Usage, charge, measured

RESTARTS = 2
START_S, ELASTIC_START_S = 300, 60
"""How long workers may take to start; elastic ones are first tried with a place that is lost."""

USAGE = "usage-{}.json"  # of the worker of a rank


def run_on_workers(
    function: Callable[[], None],
    *,
    workers: int,
    least: int | None = None,
    gpus: float = 0,
    cpus: int = 1,
    folder: Path,
    lasting: tuple[type[Exception], ...] = (),
) -> None:
    """Call `function` on every worker and wait for all of them.

    With `least` there may be fewer, down to these: as many as the cluster has room for when they
    start, and when one was lost (Ray Train's elastic training). `gpus` and `cpus` are per worker;
    `folder` is in the scratch of a stage. Errors of the types in `lasting`, which every worker
    must meet alike, are raised here as they are: another attempt would meet them again. Other
    errors are raised after `RESTARTS` more attempts.
    """
    default("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", str(ELASTIC_START_S if least else START_S))
    from ray import train
    from ray.train.torch import TorchTrainer

    from cluster.process_group import ProcessGroup
    from cluster.world import BACKENDS

    ours: Any = train  # to a type checker its classes are those of two versions

    folder.mkdir(parents=True, exist_ok=True)
    failure = folder / "failure.json"
    accounts = [folder / USAGE.format(rank) for rank in range(workers)]
    for left in (failure, *accounts):
        withdraw(left)
    trainer = TorchTrainer(
        partial(_attempt, function, failure, lasting),
        torch_config=ProcessGroup(backend=BACKENDS[gpus > 0]),
        scaling_config=ours.ScalingConfig(
            num_workers=(least, workers) if least else workers,
            use_gpu=gpus > 0,
            resources_per_worker={"CPU": cpus} | ({"GPU": gpus} if gpus else {}),
        ),
        run_config=ours.RunConfig(
            name="run",
            **storage(folder),
            failure_config=ours.FailureConfig(max_failures=RESTARTS),
        ),
    )
    trainer.fit()
    for account in obtain(*accounts):
        charge(Usage(*json.loads(account.read_text())))
    if obtain(failure):
        name, message = json.loads(failure.read_text())
        raise next(kind for kind in lasting if kind.__name__ == name)(message)


def _attempt(
    function: Callable[[], None], failure: Path, lasting: tuple[type[Exception], ...]
) -> None:
    """One worker's call of the function; an error that would come again ends the run quietly."""
    import ray.train

    rank = ray.train.get_context().get_world_rank()
    failure.parent.mkdir(parents=True, exist_ok=True)  # on another node than the caller's
    try:
        with measured() as usage:
            function()
        account = failure.with_name(USAGE.format(rank))
        account.write_text(json.dumps([usage.cpu_seconds, usage.peak_bytes]))
        publish(account)
    except lasting as error:
        if rank == 0:
            kind = next(kind for kind in lasting if isinstance(error, kind))
            failure.write_text(json.dumps([kind.__name__, str(error)]))
            publish(failure)
    finally:
        release()
