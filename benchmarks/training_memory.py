"""Peak memory of training on the CPU: what `headrace plan` says, and what it is.

    uv run python benchmarks/training_memory.py [--depths 9 10 12] [--stages 0 1 2 3] [--workers 2]
                                                [--tensor 2] [--precision bf16_weights]
    uv run python benchmarks/training_memory.py --head

Each training runs in processes of its own for a few steps and writes a checkpoint after each.
Measured is the peak resident memory of one worker less that after imports and the start of
DeepSpeed. `--head` compares the step of a network with a vocabulary of 128k with and without the
chunked loss, less weights, gradients and optimizer state.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

    from model.transformer import Transformer
    from tasks.training.job import Program

from cluster.placement import Placement
from model.config import ModelConfig
from model.flops import trained_parameter_count
from model.shapes import from_depth
from tasks.training.job import Batch
from tasks.training.memory import device_bytes
from tasks.training.settings import Precision, PretrainSettings

VOCABULARY, CONTEXT, STEPS = 8192, 256, 3


def main() -> None:
    """Print planned and measured bytes of each training."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--depths", type=int, nargs="+", default=[9, 10, 12])
    parser.add_argument("--stages", type=int, nargs="+", default=[0, 1, 2, 3])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument(
        "--tensor", type=int, default=1, help="workers that have a network together"
    )
    parser.add_argument("--precision", default="fp32", choices=get_args(Precision))
    parser.add_argument("--samples", type=int, default=2, help="of one worker's batch")
    parser.add_argument("--head", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(peak_bytes(**json.loads(options.child))))
        return
    if options.head:
        compare_heads()
        return
    print("   params  workers  ZeRO   planned  measured  planned/measured")
    for depth in options.depths:
        config = shape(depth)
        for stage in options.stages:
            workers, tensor = options.workers, options.tensor
            samples = options.samples * workers // tensor
            precision: Precision = options.precision
            settings = PretrainSettings(
                context=CONTEXT, batch_tokens=samples * CONTEXT, precision=precision
            )
            placement = Placement(zero_stage=stage, workers=workers, tensor_parallel=tensor)
            planned = device_bytes(config, settings, placement).total
            measured = in_children(
                workers,
                depth=depth,
                stage=stage,
                samples=samples,
                tensor=tensor,
                precision=precision,
            )
            count = trained_parameter_count(config) / 1e6
            told = f"{planned / 1e9:8.2f} GB {measured / 1e9:6.2f} GB {planned / measured:8.2f}"
            print(f"{count:7.1f} M {workers:8} {stage:5} {told}", flush=True)


def shape(depth: int, vocab_size: int = VOCABULARY) -> ModelConfig:
    """The dial's decoder of this depth; a shallow one with a vocabulary that outweighs it."""
    return from_depth(depth, vocab_size=vocab_size, context=CONTEXT)


def in_children(workers: int, **how: float | str) -> int:
    """`peak_bytes` of as many workers, each in a process of its own; the largest."""
    with tempfile.TemporaryDirectory() as folder:
        joint = how | {"workers": workers, "folder": folder}
        children = [
            subprocess.Popen(
                [sys.executable, __file__, "--child", json.dumps(joint | {"rank": rank})],
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(workers)
        ]
        return max(int(child.communicate()[0]) for child in children)


def peak_bytes(
    folder: str,
    rank: int,
    workers: int,
    depth: int,
    stage: int,
    samples: int,
    tensor: int = 1,
    vocab_size: int = VOCABULARY,
    chunked: bool = True,
    checkpoint_seconds: float = 1e-6,
    precision: Precision = "fp32",
) -> int:
    """Peak resident memory of a training above that before it."""
    import torch
    import torch.distributed as dist

    from cluster.deepspeed_import import load_deepspeed
    from cluster.environment import prepare
    from tasks.training.job import TrainJob
    from tasks.training.loop import train

    prepare()
    torch.set_num_threads(1)
    load_deepspeed("cpu")
    if workers > 1:
        store = dist.FileStore(f"{folder}/store", workers)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=workers)
    placement = Placement(zero_stage=stage, workers=workers, tensor_parallel=tensor)
    small, real = (Path(folder) / name for name in ("small", "real"))
    for scratch in (small, real):
        scratch.mkdir(exist_ok=True)
    warm = partial(program, 1, 64, True)
    train(TrainJob(warm, 1, workers, small, checkpoint_seconds=1e6, precision=precision), placement)
    before = resident("VmRSS")
    build = partial(program, depth, vocab_size, chunked)
    how = {"checkpoint_seconds": checkpoint_seconds, "precision": precision}
    job = TrainJob(build, STEPS, samples, real, **how)
    train(job, placement)
    return resident("VmHWM") - before


def program(depth: int, vocab_size: int, chunked: bool) -> "Program":
    """A decoder on random tokens."""
    from model.objectives.modules import CausalLM
    from model.transformer import Transformer
    from tasks.training.job import Program

    module = CausalLM(Transformer(shape(depth, vocab_size)))
    if not chunked:
        module.forward = partial(plain_loss, module.network)
    return Program(module, partial(batch, vocab_size))


def plain_loss(network: "Transformer", inputs: "Tensor", targets: "Tensor") -> "Tensor":
    """The loss from all logits at once."""
    from torch.nn.functional import cross_entropy

    return cross_entropy(network.logits(network(inputs)).flatten(0, 1), targets.flatten())


def compare_heads(depth: int = 4, vocab_size: int = 131_072, samples: int = 8) -> None:
    """Print what a step takes beyond its weights, gradients and moments, both ways."""
    fixed = 16 * trained_parameter_count(shape(depth, vocab_size))
    how = {"depth": depth, "stage": 0, "samples": samples, "vocab_size": vocab_size}
    how |= {"checkpoint_seconds": 1e6}
    whole, chunked = (in_children(1, **how, chunked=chunked) - fixed for chunked in (False, True))
    print(f"all logits {whole / 1e6:.0f} MB, chunked {chunked / 1e6:.0f} MB: {chunked / whole:.3f}")


def batch(vocab_size: int, first: int, count: int) -> Batch:
    """Random tokens that depend on the sample number only."""
    tokens = np.random.default_rng(first).integers(vocab_size, size=(count, CONTEXT + 1))
    return {"inputs": tokens[:, :-1].copy(), "targets": tokens[:, 1:].copy()}


def resident(key: str) -> int:
    """A figure of this process's memory in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


if __name__ == "__main__":
    main()
