"""Trains on a Ray cluster of two nodes with one worker each, of which one leaves on the way.

python -m tests.training.elastic FOLDER
"""

import os
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

from cluster.environment import prepare
from cluster.placement import Placement
from tasks.training.job import CHECKPOINTS, Program
from tasks.training.launch import launch
from tests.training import toy

STEPS = 60


def note_share(folder: Path, first: int, count: int) -> dict[str, Any]:
    """A batch, of which the size of a worker's share is noted."""
    (folder / f"share-{count}").touch()
    time.sleep(0.05)
    return toy.batch(first, count)


def build(folder: Path) -> Program:
    program = toy.build()
    return Program(program.module, partial(note_share, folder))


def main(folder: Path) -> None:
    prepare()  # before Ray is imported
    from ray.cluster_utils import Cluster

    from cluster import ray_session

    cluster = Cluster()
    cluster.add_node(num_cpus=1)
    other = cluster.add_node(num_cpus=1)
    os.environ["RAY_ADDRESS"] = cluster.address
    ray_session.start()
    job = toy.job(folder, steps=STEPS, build=partial(build, folder), checkpoint_seconds=0.2)
    loser = threading.Thread(target=lose, args=(cluster, other, job.scratch / CHECKPOINTS))
    loser.start()
    launch(job, Placement(workers=2, least_workers=1, zero_stage=1))
    loser.join()
    ray_session.stop()
    cluster.shutdown()


def lose(cluster: Any, node: Any, checkpoints: Path) -> None:
    while not list(checkpoints.glob("step-*")):
        time.sleep(0.05)
    cluster.remove_node(node, allow_graceful=True)  # Ray knows at once that it is gone


if __name__ == "__main__":
    main(Path(sys.argv[1]))
