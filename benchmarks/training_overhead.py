"""What the training loop with DeepSpeed and Ray costs over a bare PyTorch loop, on one CPU thread.

    uv run python benchmarks/training_overhead.py [--steps 20] [--rounds 5] [--stages 0 1 2 3]

Both sides train the same 10 M parameter decoder on the same random tokens with the same fused AdamW
and gradient clipping, in turns: the bare loop in this process, Headrace's in a Ray worker, as its
stages run. Figures are CPU milliseconds a step, the best round of each side, the first steps left
out; Headrace's include Ray's own processes while it trains, its batches, checks and metrics file.
"""

import argparse
import contextlib
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import torch

from cluster import ray_session
from cluster.environment import prepare
from cluster.placement import Placement
from model.flops import parameter_count
from model.objectives.modules import CausalLM
from model.shapes import from_depth
from model.transformer import Transformer
from tasks.training.job import Batch, Program, TrainJob
from tasks.training.settings import OptimizerSettings

SHAPE = from_depth(8, vocab_size=4096, context=128, width=288, heads=9)
SAMPLES, WARMUP = 4, 4
OPTIMIZER = OptimizerSettings(schedule="constant", warmup_steps=0)


def main() -> None:
    """Print the CPU time of each side and its ratio to the bare loop."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--stages", type=int, nargs="+", default=[0, 1, 2, 3])
    options = parser.parse_args()
    prepare()
    torch.set_num_threads(1)
    ray_session.start()
    import ray

    trainer = ray.remote(num_cpus=1)(Worker).remote()
    steps = WARMUP + options.steps
    best: dict[str, float] = {}
    for _ in range(options.rounds):
        found = {"bare": bare(steps)}
        for stage in options.stages:
            before = of_ray(leave_out := ray.get(trainer.pid.remote()))
            own = ray.get(trainer.train.remote(steps, stage))
            found[f"ZeRO {stage}"] = own + (of_ray(leave_out) - before) / steps
        best = {name: min(best.get(name, 1e9), seconds) for name, seconds in found.items()}
    print(f"{parameter_count(SHAPE) / 1e6:.1f} M parameters, {SAMPLES} x {SHAPE.context} tokens")
    for name, seconds in best.items():
        print(f"{name:8} {1e3 * seconds:8.1f} CPU ms a step  x{seconds / best['bare']:.3f}")
    ray_session.stop()


class Worker:
    """Trains in a process of Ray's."""

    def pid(self) -> int:
        """Of this process."""
        return psutil.Process().pid

    def train(self, steps: int, zero_stage: int) -> float:
        """CPU seconds a step of the loop that every training stage runs."""
        from tasks.training.loop import train

        clock = Clock()
        with tempfile.TemporaryDirectory() as folder:
            build = partial(program, clock)
            job = TrainJob(
                build, steps, SAMPLES, Path(folder), optimizer=OPTIMIZER, checkpoint_seconds=1e6
            )
            train(job, Placement(zero_stage=zero_stage))
        return clock.seconds()


class Clock:
    """Notes the CPU time whenever a batch is asked for."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def batch(self, first: int, count: int) -> Batch:
        """Random tokens that depend on the sample number only."""
        self.times.append(time.process_time())
        random = np.random.default_rng(first)
        tokens = random.integers(SHAPE.vocab_size, size=(count, SHAPE.context + 1))
        return {"inputs": tokens[:, :-1].copy(), "targets": tokens[:, 1:].copy()}

    def seconds(self) -> float:
        """Mean CPU seconds of a step, after the first ones."""
        return (self.times[-1] - self.times[WARMUP]) / (len(self.times) - 1 - WARMUP)


def of_ray(leave_out: int) -> float:
    """CPU seconds of the processes Ray started for this one, but for the one that trains."""
    seconds = 0.0
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
            times = child.cpu_times()
            seconds += 0 if child.pid == leave_out else times.user + times.system
    return seconds


def program(clock: Clock) -> Program:
    """The network and its batches."""
    torch.manual_seed(0)
    return Program(CausalLM(Transformer(SHAPE)), clock.batch)


def bare(steps: int) -> float:
    """CPU seconds a step of a plain PyTorch loop."""
    clock = Clock()
    module = program(clock).module
    optimizer = torch.optim.AdamW(
        module.parameters(), OPTIMIZER.learning_rate, OPTIMIZER.betas, fused=True
    )
    for step in range(steps):
        arrays = clock.batch(step * SAMPLES, SAMPLES)
        loss = module(**{name: torch.from_numpy(array) for name, array in arrays.items()})
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
    return clock.seconds()


if __name__ == "__main__":
    main()
