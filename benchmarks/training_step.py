"""A training step of the real loop, DeepSpeed included, beside nanoGPT's, on one CPU thread.

    uv run python benchmarks/training_step.py nanoGPT/model.py [--precision bf16] [--rounds 3]

Both train the same GPT-2 shape (width 256, 6 layers, 4 heads, context 256, vocabulary 8,192) from
the same weights on the same batches of 8 with AdamW and clipping, both compiled, in one process, in
turns. Figures are CPU microseconds a token, the best round of each, compilation and the first steps
left out; the loop's include its batches, metrics file and checks. Losses must agree to 1e-3. On a
CPU without bfloat16 arithmetic a bf16 step of 8 samples takes minutes on both sides; there give
`--samples 1 --warmup 5 --steps 5 --rounds 1`.
"""

import argparse
import contextlib
import itertools
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from gpu_parts.peers import loaded
from torch import nn

from cluster.environment import prepare
from cluster.placement import Placement
from model import hub_weights
from model.config import ModelConfig
from model.objectives.modules import CausalLM
from model.shapes import from_depth
from model.transformer import Transformer
from tasks.training.job import METRICS, Batch, Program, TrainJob
from tasks.training.settings import OptimizerSettings

SHAPE = ModelConfig(
    **vars(from_depth(6, vocab_size=8192, context=256, width=256, heads=4))
    | {
        "norm": "layer",
        "positions": "learned",
        "activation": "gelu",
        "ffn_width": 1024,
        "bias": "all",
        "tie_embeddings": True,
        "norm_epsilon": 1e-5,
    }
)
RATE, DECAY, CLIP = 1e-3, 0.1, 1.0
OPTIMIZER = OptimizerSettings(
    learning_rate=RATE, weight_decay=DECAY, clip=CLIP, schedule="constant", warmup_steps=0
)


def main() -> None:
    """Print the time a token of each side and how many times faster Headrace is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nanogpt", type=Path, help="the path of nanoGPT's model.py")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=6, help="first steps that do not count")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=8, help="of a batch")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    options = parser.parse_args()
    prepare()
    torch.set_num_threads(1)
    peer = loaded(options.nanogpt, "nanogpt_model")
    sides = {
        "nanoGPT": partial(nanogpt, peer, options.precision, options.samples),
        "Headrace": partial(headrace, options.precision, options.samples),
    }
    best, losses = dict.fromkeys(sides, float("inf")), {}
    for _, (name, side) in itertools.product(range(options.rounds), sides.items()):
        clock = Clock()
        losses[name] = side(options.warmup + options.steps, clock)
        best[name] = min(best[name], clock.seconds(options.warmup))
    apart = max(abs(a - b) for a, b in zip(*losses.values(), strict=True))
    for name, seconds in best.items():
        print(f"{name:9} {1e6 * seconds / (options.samples * SHAPE.context):8.2f} CPU us a token")
    print(f"ratio {best['nanoGPT'] / best['Headrace']:.3f}; losses differ by up to {apart:.1e}")
    assert apart < (1e-3 if options.precision == "fp32" else 5e-2), "not the same training"


class Clock:
    """Notes the CPU time whenever a batch is asked for."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def batch(self, first: int, count: int) -> Batch:
        """Random tokens that depend on the sample number only."""
        self.times.append(time.process_time())
        tokens = np.random.default_rng(first).integers(8192, size=(count, SHAPE.context + 1)) ** 2
        tokens = tokens // 8192  # small ids are likelier: something to learn
        return {"inputs": tokens[:, :-1].copy(), "targets": tokens[:, 1:].copy()}

    def seconds(self, first: int) -> float:
        """Mean CPU seconds of a step, after the first ones."""
        return (self.times[-1] - self.times[first]) / (len(self.times) - 1 - first)


def network() -> Transformer:
    """The weights both begin with."""
    torch.manual_seed(0)
    return Transformer(SHAPE)


def groups(module: nn.Module) -> list[dict[str, Any]]:
    """nanoGPT's: matrices and embeddings decay."""
    parameters = list(module.parameters())
    return [
        {"params": [p for p in parameters if p.ndim >= 2], "lr": RATE, "weight_decay": DECAY},
        {"params": [p for p in parameters if p.ndim < 2], "lr": RATE, "weight_decay": 0.0},
    ]


def headrace(precision: str, samples: int, steps: int, clock: Clock) -> list[float]:
    """The loop that every training stage runs; its losses."""
    from tasks.training.loop import train

    with tempfile.TemporaryDirectory() as folder:
        job = TrainJob(
            partial(program, clock.batch),
            steps,
            samples,
            Path(folder),
            optimizer=OPTIMIZER,
            precision=precision,
            checkpoint_seconds=1e6,
        )
        train(job, Placement(compile=True))
        rows = (Path(folder) / METRICS).read_text().splitlines()
        return [json.loads(row)["loss"] for row in rows]


def program(batch: Callable[[int, int], Batch]) -> Program:
    """Our network and its batches."""
    return Program(CausalLM(network()), batch)


def nanogpt(
    peer: ModuleType, precision: str, samples: int, steps: int, clock: Clock
) -> list[float]:
    """The loop of nanoGPT's train.py, its network compiled; its losses."""
    model = peer.GPT(peer.GPTConfig(256, 8192, 6, 4, 256, dropout=0.0, bias=True))
    model.load_state_dict(dict(renamed(network())), strict=False)
    optimizer = torch.optim.AdamW(groups(model), lr=RATE, betas=OPTIMIZER.betas)
    bf16 = torch.autocast("cpu", torch.bfloat16)
    autocast = bf16 if precision == "bf16" else contextlib.nullcontext()
    compiled, losses = torch.compile(model), []
    for step in range(steps):
        arrays = clock.batch(step * samples, samples)
        with autocast:
            _, loss = compiled(*(torch.from_numpy(array) for array in arrays.values()))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
    return losses


def renamed(ours: Transformer) -> Iterator[tuple[str, torch.Tensor]]:
    """Our weights under GPT-2's names. GPT-2's matrices in blocks are inputs x outputs, nanoGPT's
    the other way round.
    """
    for rename in hub_weights.renames(SHAPE, "gpt2"):
        for name, tensor in rename.export(ours.state_dict()):
            yield name, tensor.T if tensor.ndim == 2 and ".h." in name else tensor
    yield "lm_head.weight", ours.head_weight


if __name__ == "__main__":
    main()
