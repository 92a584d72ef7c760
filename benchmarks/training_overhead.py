"""What the training loop with DeepSpeed costs over a bare PyTorch loop, on one CPU thread.

    uv run python benchmarks/training_overhead.py [--steps 40] [--rounds 4]

Both sides train the same 1.3 M parameter decoder on the same random tokens with the same AdamW and
gradient clipping, in one process, in turns. Figures are CPU seconds, the best round of each side;
the loop's include its engine, metrics file and final weights.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from cluster.environment import prepare
from cluster.placement import Placement
from model.config import from_depth
from model.objectives.modules import CausalLM
from model.transformer import Transformer
from tasks.training.job import Batch, Program, TrainJob
from tasks.training.settings import OptimizerSettings

VOCABULARY, CONTEXT, SAMPLES = 4096, 128, 4
OPTIMIZER = OptimizerSettings(schedule="constant", warmup_steps=0)


def main() -> None:
    """Print the CPU time of each side and its ratio to the bare loop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    prepare()
    torch.set_num_threads(1)
    sides: dict[str, Callable[[], None]] = {"bare": partial(bare, options.steps)}
    sides |= {f"ZeRO {z}": partial(headrace, options.steps, z) for z in range(4)}
    best = {name: float("inf") for name in sides}
    for side in sides.values():
        side()  # imports and first calls are not what is measured
    for _ in range(options.rounds):
        for name, side in sides.items():
            best[name] = min(best[name], cpu_seconds(side))
    for name, seconds in best.items():
        print(f"{name:8} {seconds:7.2f} CPU s  x{seconds / best['bare']:.3f}")


def cpu_seconds(side: Callable[[], None]) -> float:
    """CPU time of a call, all threads."""
    started = time.process_time()
    side()
    return time.process_time() - started


def program() -> Program:
    """The network and its batches."""
    torch.manual_seed(0)
    config = from_depth(4, vocab_size=VOCABULARY, context=CONTEXT)
    return Program(CausalLM(Transformer(config)), batch)


def batch(first: int, count: int) -> Batch:
    """Random tokens that depend on the sample number only."""
    tokens = np.random.default_rng(first).integers(VOCABULARY, size=(count, CONTEXT + 1))
    return {"inputs": tokens[:, :-1].copy(), "targets": tokens[:, 1:].copy()}


def bare(steps: int) -> None:
    """A plain PyTorch loop."""
    module = program().module
    optimizer = torch.optim.AdamW(module.parameters(), OPTIMIZER.learning_rate, OPTIMIZER.betas)
    for step in range(steps):
        arrays = batch(step * SAMPLES, SAMPLES)
        loss = module(**{name: torch.from_numpy(array) for name, array in arrays.items()})
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()


def headrace(steps: int, zero_stage: int) -> None:
    """The loop that every training stage runs."""
    from tasks.training.loop import train

    with tempfile.TemporaryDirectory() as folder:
        job = TrainJob(program, steps, SAMPLES, Path(folder), OPTIMIZER, checkpoint_seconds=1e6)
        train(job, Placement(zero_stage=zero_stage))


if __name__ == "__main__":
    main()
