"""Trains the toy in a process of its own, as one of some ranks: for tests that kill it.

python -m tests.faults.train_toy FOLDER --pause 0.02
python -m tests.faults.train_toy FOLDER --rank 0 --size 2 --store FILE --zero-stage 1
"""

import argparse
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch.distributed as dist

from cluster.placement import Placement
from tasks.training.job import Program
from tasks.training.launch import launch
from tasks.training.loop import train
from tests.training import toy

STEPS = 40


def slow(pause: float, first: int, count: int) -> dict[str, np.ndarray]:
    time.sleep(pause)
    return toy.batch(first, count)


def build(pause: float, dropout: float) -> Program:
    program = toy.build(dropout)
    return Program(program.module, partial(slow, pause))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--size", type=int, default=1)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--zero-stage", type=int, default=0)
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--checkpoint-seconds", type=float, default=0.05)
    parser.add_argument("--hang-seconds", type=float, default=1000.0)
    given = parser.parse_args()
    job = toy.job(
        given.folder,
        build=partial(build, given.pause, given.dropout),
        steps=STEPS,
        checkpoint_seconds=given.checkpoint_seconds,
    )
    placement = Placement(
        workers=given.size, zero_stage=given.zero_stage, hang_seconds=given.hang_seconds
    )
    if given.size == 1:
        launch(job, placement)
        return
    store = dist.FileStore(str(given.store), given.size)
    dist.init_process_group("gloo", store=store, rank=given.rank, world_size=given.size)
    train(job, placement)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
