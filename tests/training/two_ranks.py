"""Trains jobs one after another by two ranks, for tests that look at what they left.

python -m tests.training.two_ranks FOLDER
"""

import importlib
import multiprocessing
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

from cluster.deepspeed_import import load_deepspeed
from cluster.errors import BadInput
from cluster.placement import Placement
from model.config import ExpertConfig
from tasks.training.job import CHECKPOINTS, Program, TrainJob
from tasks.training.loop import train
from tasks.training.settings import OptimizerSettings
from tests.training import toy

STEPS = 25
SLOW = OptimizerSettings(learning_rate=2e-3)  # a faster one makes much of a rounding error


def rank_of(train_all: Callable[[Path, int], None], folder: Path, rank: int) -> None:
    """One rank of a group of its own, that trains all of these."""
    store = dist.FileStore(str(folder / f"store-{train_all.__name__}"), 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    train_all(folder, rank)
    dist.destroy_process_group()


def with_a_compiler(folder: Path, _: int) -> None:
    """What needs PyTorch's compiler: ZeRO 3 of DeepSpeed, and a network that is compiled; that
    first, since DeepSpeed takes note of the group in a training without shards.
    """
    compiled(folder)
    train(network_job(folder / "zero-3"), Placement(workers=2, zero_stage=3))
    train(half_job(folder / "half-3"), Placement(workers=2, zero_stage=3))
    train(shared_job(folder / "shared-3"), Placement(workers=2, context_parallel=2, zero_stage=3))
    train(toy.sitting_job(folder / "sitting-3-1"), Placement(workers=2, zero_stage=3))


def without_a_compiler(folder: Path, rank: int) -> None:
    """All else, in processes that have not loaded it, and do not."""
    for stage in range(3):
        train(network_job(folder / f"zero-{stage}"), Placement(workers=2, zero_stage=stage))
    train(half_job(folder / "half-2"), Placement(workers=2, zero_stage=2))
    train(shared_job(folder / "shared-0"), Placement(workers=2, context_parallel=2))
    for stage in range(3):
        team = Placement(workers=2, tensor_parallel=2, zero_stage=stage)
        train(divided_job(folder / f"divided-{stage}"), team)
    team = Placement(workers=2, tensor_parallel=2, zero_stage=1)
    train(experts_job(folder / "divided-experts"), team)
    train(uneven_job(folder / "uneven"), Placement(workers=2, zero_stage=1))
    sit_exams(folder, rank)
    stop_and_go_on(folder, rank)
    regroup(folder)
    for name, harm in (("nan", poison), ("flip", flip), ("torn", tear), ("lost", lose)):
        job = toy.job(folder / name, build=partial(harm, rank), checkpoint_seconds=1e-6)
        (folder / f"{name}-{rank}.txt").write_text(error_of(job, Placement(workers=2)))
    team = Placement(workers=2, tensor_parallel=2)
    job = toy.job(folder / "parted", build=partial(part, rank), checkpoint_seconds=1e-6)
    (folder / f"parted-{rank}.txt").write_text(error_of(job, team))
    (folder / f"compiler-{rank}.txt").write_text(str("torch._dynamo" in sys.modules))


def network_job(folder: Path) -> TrainJob:
    return toy.job(folder, build=toy.network, steps=STEPS, optimizer=SLOW, micro_samples=4)


def half_job(folder: Path) -> TrainJob:
    """Weights in bf16, of a network whose gradients are more than rounding."""
    return replace(divided_job(folder), precision="bf16_weights", micro_samples=2)


def shared_job(folder: Path) -> TrainJob:
    return toy.job(folder, build=toy.shareable, steps=STEPS, optimizer=SLOW)


def divided_job(folder: Path, break_at: int = 0) -> TrainJob:
    build = partial(toy.dividable, break_at=break_at)
    return toy.job(
        folder,
        build=build,
        steps=STEPS,
        optimizer=SLOW,
        checkpoint_seconds=1e-6 if break_at else 60,
    )


def experts_job(folder: Path) -> TrainJob:
    """Each rank has two of four experts, and half of the one that all tokens go through."""
    experts = ExpertConfig(routed=4, active=2, width=16, shared=1, balance_bias=1e-3)
    build = partial(toy.dividable, experts=experts)
    return toy.job(folder, build=build, steps=STEPS, optimizer=SLOW)


def sit_exams(folder: Path, rank: int) -> None:
    """Networks whole on each rank, and divided by tensors; one exam each. Then a rank's exam alone
    fails.
    """
    for parts in (1, 2):
        place = Placement(workers=2, tensor_parallel=parts)
        train(toy.sitting_job(folder / f"sitting-0-{parts}"), place)
    told = error_of(toy.sitting_job(folder / "unseated", toy.Broken), Placement(workers=2))
    (folder / f"unseated-{rank}.txt").write_text(told)


def compiled(folder: Path) -> None:
    """A network that both have together, compiled: traced, without the minute that code takes."""
    real = torch.compile
    with mock.patch.object(torch, "compile", lambda call, **_: real(call, backend="eager")):
        team = Placement(workers=2, tensor_parallel=2, compile=True)
        train(divided_job(folder / "divided-compiled"), team)


def stop_and_go_on(folder: Path, rank: int) -> None:
    """A network that both have together, with dropout; then again from a checkpoint on the way."""
    for stage in (0, 2):
        through, stopped = (folder / f"{name}-{stage}" for name in ("through", "stopped"))
        team = Placement(workers=2, tensor_parallel=2, zero_stage=stage)
        train(dropping_job(through), team)
        if rank == 0:
            shutil.copytree(through, stopped)
            shutil.rmtree(max((stopped / CHECKPOINTS).glob("step-*")))
        dist.barrier()
        train(dropping_job(stopped), team)


def regroup(folder: Path) -> None:
    """Trainings that stop in the middle, of which two go on with other teams."""
    data, team = Placement(workers=2, zero_stage=1), Placement(workers=2, tensor_parallel=2)
    for name, before in (("apart", team), ("joined", data), ("left", team)):
        told = error_of(divided_job(folder / name, break_at=10), before)
        assert told == "RuntimeError: broken", told
    train(divided_job(folder / "apart"), data)
    train(divided_job(folder / "joined"), team.model_copy(update={"zero_stage": 2}))


def dropping_job(folder: Path) -> TrainJob:
    build = partial(toy.dividable, 0.2)
    return toy.job(folder, build=build, optimizer=SLOW, checkpoint_seconds=1e-6)


def uneven_job(folder: Path) -> TrainJob:
    return toy.job(folder, build=toy.uneven)


def error_of(job: TrainJob, placement: Placement) -> str:
    try:
        train(job, placement)
    except (BadInput, OSError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def poison(rank: int) -> Program:
    """One rank alone meets NaN, in its seventh step."""
    return toy.build(poison=7 if rank == 1 else 0)


def flip(rank: int) -> Program:
    """One rank's memory flips a bit of a weight, in its seventh step."""
    program = toy.build()
    return _flipping(program, program.module.scale, rank)


def part(rank: int) -> Program:
    """The same in a network that both have together, of a weight that both have."""
    program = toy.dividable()
    return _flipping(program, program.module.network.norm.weight, rank)


def _flipping(program: Program, weight: Any, rank: int) -> Program:
    calls = iter(range(1, 100))

    def harm(module: Any, inputs: Any) -> None:
        if next(calls) == 7 and rank == 1:
            weight.data.view(torch.int32)[3] ^= 1 << 12

    program.module.register_forward_pre_hook(harm)
    return program


def tear(rank: int) -> Program:
    """One rank alone finds a shard damaged, in its fifth batch."""
    return _failing(rank, BadInput("block 7 is torn"))


def lose(rank: int) -> Program:
    """One rank's disk fails, in its fifth batch."""
    return _failing(rank, OSError("no such device"))


def _failing(rank: int, error: Exception) -> Program:
    program, calls = toy.build(), iter(range(1, 100))

    def batch(first: int, count: int) -> Any:
        if next(calls) == 5 and rank == 1:
            raise error
        return toy.batch(first, count)

    return Program(program.module, batch)


def both(folder: Path) -> int:
    """How many ranks failed; they are forked once all is imported that both need."""
    load_deepspeed("cpu")
    failed = _ranks(without_a_compiler, folder)
    importlib.import_module("torch._dynamo")
    return failed + _ranks(with_a_compiler, folder)


def _ranks(train_all: Callable[[Path, int], None], folder: Path) -> int:
    forked = multiprocessing.get_context("fork")
    ranks = [forked.Process(target=rank_of, args=(train_all, folder, rank)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    return sum(rank.exitcode != 0 for rank in ranks)


if __name__ == "__main__":
    sys.exit(both(Path(sys.argv[1])))
