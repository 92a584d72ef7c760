"""A training killed with SIGKILL at seeded random moments, on changing numbers of workers.

    uv run python benchmarks/training_kills.py [--kills 20] [--changes 5] [--stages 0 1 2 3]

A decoder trains on two gloo ranks. One of them, drawn at random, is killed at a random moment of a
random step, while checkpoints are being written all the time; the other a moment later, as Ray
would. Then all go on from the newest checkpoint, after some of the kills on one rank instead of two
or two instead of one. Each row of the table is one stretch between two kills, compared with a run
on two ranks that nothing disturbs: until the first change its losses must be the same bits. After
a change they must agree to 1e-5 relative for 20 steps, and to 1e-3 at the end. Steps that are made
twice on the same number of ranks, before a kill and again after it, must give the same bits too.
"""

import argparse
import importlib
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from cluster.deepspeed_import import load_deepspeed
from cluster.environment import prepare
from cluster.placement import Placement
from model.objectives.modules import CausalLM
from model.shapes import from_depth
from model.transformer import Transformer
from tasks.training.job import METRICS, Batch, Program, TrainJob
from tasks.training.settings import OptimizerSettings
from tasks.training.telemetry import read_rows

VOCABULARY, CONTEXT, SAMPLES, MICRO = 512, 64, 8, 4
NEAR, AFTER_CHANGE, AT_END = 20, 1e-5, 1e-3
SECONDS = 600


@dataclass(frozen=True)
class Kill:
    """After which step of the run, and how many ranks go on."""

    step: int
    ranks: int


def main() -> None:
    """Train undisturbed and killed in each ZeRO stage; exit with 1 when anything differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--changes", type=int, default=5)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--stages", type=int, nargs="+", default=[0, 1, 2, 3])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    prepare()
    load_deepspeed("cpu")  # once, with what it imports later: every rank is a fork of this process
    importlib.import_module("deepspeed.runtime.zero.muon.muon_optimizer")
    found = [one_stage(stage, options) for stage in options.stages]
    sys.exit(0 if all(found) else 1)


def one_stage(stage: int, options: argparse.Namespace) -> bool:
    """Both runs in one ZeRO stage, and their table."""
    kills = plan(random.Random(options.seed), options.steps, options.kills, options.changes)
    with tempfile.TemporaryDirectory() as clean, tempfile.TemporaryDirectory() as killed:
        for _ in stretches(Path(clean), stage, options.steps, []):
            pass
        expected = losses(Path(clean))
        print(f"ZeRO {stage}: step of the kill, ranks, worst difference to the clean run")
        return compare(expected, stretches(Path(killed), stage, options.steps, kills), kills)


def plan(chance: random.Random, steps: int, kills: int, changes: int) -> list[Kill]:
    """Kills at random steps; the number of ranks changes between two and one at some of them."""
    at = sorted(chance.sample(range(5, steps - NEAR), kills))
    changed = set(chance.sample(range(kills), changes))
    ranks, planned = 2, []
    for index, step in enumerate(at):
        ranks = 3 - ranks if index in changed else ranks
        planned.append(Kill(step, ranks))
    return planned


def compare(expected: list[float], runs: Iterator[list[float]], kills: list[Kill]) -> bool:
    """Print a row for each stretch; whether all agree as they must."""
    fine, ranks, exact, changed_at, before = True, 2, True, 0, list[float]()
    for index, found in enumerate(runs):
        apart = [abs(a - b) / b for a, b in zip(found, expected, strict=False)]
        again = same_start(before, found) if index and kills[index - 1].ranks == ranks else None
        if index and kills[index - 1].ranks != ranks:
            ranks, exact, changed_at = kills[index - 1].ranks, False, first_new(before, found)
        near, worst = max(apart[changed_at : changed_at + NEAR], default=0.0), max(apart)
        good = (worst == 0 if exact else near <= AFTER_CHANGE) and again is not False
        told = "same bits" if exact else f"{near:.1e} in {NEAR} steps, {worst:.1e} in all"
        print(f"{len(found):6} {ranks:3}   {told}{'' if good else '   WRONG'}", flush=True)
        fine, before = fine and good, found
    end = abs(before[-1] - expected[-1]) / expected[-1]
    print(f"at the end {end:.1e}, after {len(kills)} kills\n")
    return fine and len(before) == len(expected) and end <= AT_END


def first_new(before: list[float], found: list[float]) -> int:
    """The first step that was made on other ranks, counted from 0."""
    pairs = enumerate(zip(before, found, strict=False))
    return next((step for step, (a, b) in pairs if a != b), len(before))


def same_start(before: list[float], found: list[float]) -> bool:
    """Whether the steps that both made, the kept and the repeated ones, are the same bits."""
    return all(a == b for a, b in zip(before, found, strict=False))


def stretches(folder: Path, stage: int, steps: int, kills: list[Kill]) -> Iterator[list[float]]:
    """Train to each kill and then to the end; the losses so far, after each stretch."""
    ranks, chance = 2, random.Random(len(kills))
    for kill in [*kills, None]:
        before = written(folder)
        processes = start(folder, ranks, stage, steps)
        if kill is None:
            for process in processes:
                process.join(SECONDS)
                assert process.exitcode == 0, "a rank failed by itself"
        else:
            wait_for_step(folder, kill.step, before, processes)
            time.sleep(chance.uniform(0, 0.05))
            chance.shuffle(processes)
            for process in processes:
                process.kill()
                time.sleep(chance.uniform(0, 0.1))
            ranks = kill.ranks
        for process in processes:
            process.join()
        yield losses(folder)


def start(folder: Path, ranks: int, stage: int, steps: int) -> list[multiprocessing.Process]:
    """All ranks of a training, from its newest checkpoint."""
    store = folder / f"store-{time.monotonic_ns()}"
    forks = multiprocessing.get_context("fork")
    processes = [
        forks.Process(target=work, args=(folder, store, rank, ranks, stage, steps))
        for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    return processes


def work(folder: Path, store: Path, rank: int, ranks: int, stage: int, steps: int) -> None:
    """One rank."""
    from tasks.training.loop import train

    torch.set_num_threads(1)
    errors = os.open(folder / f"errors-{rank}.txt", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(errors, 2)  # a rank whose peer was killed says so at length
    os.environ["LOCAL_RANK"] = str(rank)
    dist.init_process_group(
        "gloo", store=dist.FileStore(str(store), ranks), rank=rank, world_size=ranks
    )
    settings = OptimizerSettings(learning_rate=1e-3, warmup_steps=20)
    job = TrainJob(
        program,
        steps,
        SAMPLES,
        folder,
        optimizer=settings,
        micro_samples=MICRO,
        checkpoint_seconds=0.1,
    )
    train(job, Placement(workers=ranks, zero_stage=stage))


def program() -> Program:
    """The network and its batches."""
    config = from_depth(2, vocab_size=VOCABULARY, context=CONTEXT)
    return Program(CausalLM(Transformer(config)), batch)


def batch(first: int, count: int) -> Batch:
    """Random tokens, small ones likelier, that depend on the sample number only."""
    rows = [
        np.random.default_rng(sample).integers(VOCABULARY, size=CONTEXT + 1) ** 2 // VOCABULARY
        for sample in range(first, first + count)
    ]
    tokens = np.stack(rows)
    return {"inputs": tokens[:, :-1].copy(), "targets": tokens[:, 1:].copy()}


def wait_for_step(
    folder: Path, step: int, before: int, processes: list[multiprocessing.Process]
) -> None:
    """Until the row of that step has been written, by these processes or those before them, and
    these have begun.
    """
    deadline = time.monotonic() + SECONDS
    while written(folder) == before or len(losses(folder)) < step:
        assert time.monotonic() < deadline and all(p.is_alive() for p in processes), "it stopped"
        time.sleep(0.005)


def written(folder: Path) -> int:
    """When the losses were written."""
    path = folder / METRICS
    return path.stat().st_mtime_ns if path.exists() else 0


def losses(folder: Path) -> list[float]:
    """The loss of each step that is written."""
    return [row["loss"] for row in read_rows(folder / METRICS)]


if __name__ == "__main__":
    main()
