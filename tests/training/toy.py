"""A training small enough for tests: a tiny network on made-up numbers, with jobs to train it."""

import ctypes
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from model.config import ExpertConfig
from model.objectives.modules import with_objective
from model.shapes import from_depth
from model.sharded import shard_by_shard
from model.transformer import Transformer
from tasks.training.exams import Exams
from tasks.training.job import Program, TrainJob
from tasks.training.settings import OptimizerSettings, RateScales


class Toy(nn.Module):
    """Embeds tokens, mixes them and predicts targets; odd sizes, one weight used twice."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.embedding = nn.Embedding(13, 7)
        self.hidden = nn.Linear(7, 7)
        self.dropout = nn.Dropout(dropout)
        self.scale = nn.Parameter(torch.ones(7))

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        hidden = self.dropout(torch.tanh(self.hidden(self.embedding(inputs)))) * self.scale
        logits = hidden @ self.embedding.weight.T
        return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def batch(first: int, count: int) -> dict[str, np.ndarray]:
    """Samples that depend on their numbers only: targets are a fixed function of the inputs."""
    rows = [np.random.default_rng(i).integers(0, 13, 5) for i in range(first, first + count)]
    inputs = np.stack(rows)
    return {"inputs": inputs, "targets": (inputs * 5 + 1) % 13}


def build(dropout: float = 0.0, poison: int = 0, steep: int = 0, break_at: int = 0) -> Program:
    """`poison`: the call in which the loss becomes NaN; `steep`: in which the gradient explodes;
    `break_at`: which fails.
    """
    module = Toy(dropout)
    calls = itertools.count(1)
    module.register_forward_hook(partial(_harm, calls, poison, steep, break_at))
    return Program(module, batch)


def uneven_batch(first: int, count: int) -> dict[str, np.ndarray]:
    """Samples with one to five targets."""
    arrays = batch(first, count)
    for sample, targets in enumerate(arrays["targets"], first):
        targets[: sample % 5] = -100
    return arrays


def uneven() -> Program:
    program = build()
    return Program(program.module, uneven_batch)


def _harm(
    calls: Iterator[int],
    poison: int,
    steep: int,
    break_at: int,
    module: nn.Module,
    inputs: Any,
    loss: Any,
) -> Any:
    call = next(calls)
    if call == break_at:
        raise RuntimeError("broken")
    if call == poison:
        return loss * float("nan")
    if call == steep:
        loss.register_hook(lambda gradient: gradient * float("inf"))
    return loss


def job(scratch: Path, **changes: Any) -> TrainJob:
    scratch.mkdir(parents=True, exist_ok=True)
    values: dict[str, Any] = {
        "build": build,
        "steps": 12,
        "batch_samples": 8,
        "scratch": scratch,
        "optimizer": OptimizerSettings(learning_rate=0.02, scales=RateScales(vectors=0.5)),
    }
    return TrainJob(**(values | changes))


def network(z_loss: float = 0.0, break_at: int = 0) -> Program:
    """A real network, with layers to recompute and to compile, built shard by shard in ZeRO 3."""
    config = from_depth(2, vocab_size=13, context=5, width=32, heads=2)
    with shard_by_shard():
        module = with_objective(Transformer(config), "causal", z_loss)
    module.register_forward_hook(partial(_harm, itertools.count(1), 0, 0, break_at))
    return Program(module, batch)


def network_job(scratch: Path) -> TrainJob:
    return job(scratch, build=network, steps=4)


def shareable() -> Program:
    """A real network whose rows two workers can share; few targets in the first half of a row."""
    shape = from_depth(2, vocab_size=13, context=8, width=32, heads=4, kv_heads=2)
    return Program(with_objective(Transformer(shape), "causal"), packed_batch)


def dividable(
    dropout: float = 0.0, break_at: int = 0, experts: ExpertConfig | None = None
) -> Program:
    """The same, with heads that are normed and weights that do not start at zero."""
    torch.default_generator.manual_seed(1)
    shape = from_depth(2, vocab_size=13, context=8, width=32, heads=4, kv_heads=2)
    bias = "qkv" if experts else "all"
    shape = replace(shape, qk_norm="head", bias=bias, dropout=dropout, experts=experts)
    network = Transformer(shape)
    for parameter in network.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    module = with_objective(network, "causal")
    module.register_forward_hook(partial(_harm, itertools.count(1), 0, 0, break_at))
    return Program(module, packed_batch)


def packed_batch(first: int, count: int) -> dict[str, np.ndarray]:
    """Samples of two documents each."""
    inputs = np.stack(
        [np.random.default_rng(i).integers(0, 13, 8) for i in range(first, first + count)]
    )
    targets = (inputs * 5 + 1) % 13
    targets[:, :3] = -100
    documents = np.tile([1] * 5 + [2] * 3, (count, 1))
    positions = np.tile([*range(5), *range(3)], (count, 1))
    return {"inputs": inputs, "targets": targets, "documents": documents, "positions": positions}


@dataclass(frozen=True)
class Sum:
    """An exam whose score is the sum of the weights of a network's layer."""

    name: str

    def sit(self, network: Any, progress: Callable[[int, int], object]) -> dict[str, Any]:
        progress(1, 1)
        weights = network.blocks[int(self.name)].state_dict().values()
        value = float(sum(w.double().sum() for w in weights))
        point = {"value": value, "interval": [value, value], "n": 1, "baseline": None}
        return {"results": {"sum": point}, "better": "higher"}


@dataclass(frozen=True)
class Broken(Sum):
    """One that fails as no exam should."""

    def sit(self, network: Any, progress: Callable[[int, int], object]) -> dict[str, Any]:
        raise RuntimeError("the second exam is broken")


def dividable_of(weights: Mapping[str, torch.Tensor]) -> Transformer:
    """The network of the weights of `dividable`."""
    module = dividable().module
    state = {name.removeprefix("model."): weight for name, weight in weights.items()}
    module.load_state_dict(state)
    return module.network


def sitting_job(folder: Path, second: type[Sum] = Sum) -> TrainJob:
    """A real network that sits two exams, one by each of two ranks."""
    exams = Exams((2, 12), (Sum("0"), second("1")), dividable_of)
    return job(folder, build=dividable, exams=exams)


def hanging() -> Program:
    """A toy whose fourth step never ends, in a native call that keeps the interpreter's lock: no
    thread of Python can end it.
    """
    program, calls = build(), itertools.count(1)
    program.module.register_forward_hook(partial(hold_for_ever, calls))
    return program


def hold_for_ever(calls: Iterator[int], module: nn.Module, inputs: Any, loss: Any) -> None:
    if next(calls) > 3:
        ctypes.PyDLL(None).sleep(1000)
