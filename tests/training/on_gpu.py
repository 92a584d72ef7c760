"""Trainings on a GPU, in a process whose DeepSpeed is a GPU's.

python -m tests.training.on_gpu FOLDER
"""

import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from cluster.environment import prepare
from cluster.placement import Placement
from model.objectives.modules import with_objective
from model.shapes import from_depth
from model.sharded import shard_by_shard
from model.transformer import Transformer
from tasks.tokens.batches import Batch, assemble
from tasks.training.job import Program, TrainJob
from tasks.training.settings import OptimizerSettings

CONFIG = from_depth(3, vocab_size=256, context=128, width=128, heads=4)
STEPS, SAMPLES = 60, 16


def batch(first: int, count: int) -> Batch:
    """Documents in which a token follows from the one before it, nine times of ten."""
    rows = []
    for number in range(first, first + count):
        draw = np.random.default_rng(number)
        row = draw.integers(1, 256, CONFIG.context + 1)
        for at in range(1, len(row)):
            if draw.random() < 0.9:
                row[at] = (row[at - 1] * 5 + 1) % 255 + 1
        row[draw.random(len(row)) < 0.02] = 0
        rows.append(row)
    return assemble(np.stack(rows), eod=0)


def program(depth: int = 3) -> Program:
    """A decoder on them."""
    with shard_by_shard():
        network = Transformer(replace(CONFIG, depth=depth))
    return Program(with_objective(network, "causal"), batch)


def job(scratch: Path, precision: str, steps: int = STEPS, **changes: object) -> TrainJob:
    """A training of it."""
    scratch.mkdir(parents=True, exist_ok=True)
    optimizer = OptimizerSettings(learning_rate=2e-3)
    values = {"build": program, "optimizer": optimizer, "precision": precision} | changes
    return TrainJob(steps=steps, batch_samples=SAMPLES, scratch=scratch, **values)


PLACEMENTS = {
    "plain": Placement(gpus=1),
    "compiled": Placement(gpus=1, compile=True),
    "zero-1": Placement(gpus=1, zero_stage=1),
    "zero-3": Placement(gpus=1, zero_stage=3),
    "offloaded": Placement(gpus=1, zero_stage=2, offload="optimizer"),
    "selective": Placement(gpus=1, activation_checkpointing="selective"),
    "whole": Placement(gpus=1, activation_checkpointing="whole"),
    "weights-2": Placement(gpus=1, zero_stage=2),
    "weights-3": Placement(gpus=1, zero_stage=3),
}
"""By name; those of `weights` have them in bf16 too."""


def main() -> None:
    """Train in every way, and note what a larger one held."""
    from tasks.training.launch import launch

    prepare()
    folder = Path(sys.argv[1])
    for name, placement in PLACEMENTS.items():
        precision = "bf16_weights" if name.startswith("weights") else "bf16"
        launch(job(folder / name, precision), placement)
    launch(job(folder / "saved", "bf16", checkpoint_seconds=1e-6), PLACEMENTS["plain"])
    torch.cuda.reset_peak_memory_stats()
    large = job(folder / "large", "bf16", steps=4, build=partial(program, 24))
    launch(large, PLACEMENTS["plain"])
    held = {"peak": torch.cuda.max_memory_allocated(), "device": torch.cuda.get_device_name()}
    (folder / "held.json").write_text(json.dumps(held))


if __name__ == "__main__":
    main()
