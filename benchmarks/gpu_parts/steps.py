"""The step of the loop that trains, and its losses beside those of the CPU."""

import json
import math
import statistics
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

from cluster.placement import Placement
from cluster.world import join
from gpu_parts.sizes import WARMUP, Found, Sizes, packed, seen
from model.config import ModelConfig
from model.encoder_decoder import build
from model.flops import flops_per_token, parameter_count
from model.objectives.modules import CausalLM
from tasks.training.job import METRICS, Program, TrainJob
from tasks.training.loop import Trainer
from tasks.training.memory import device_bytes
from tasks.training.settings import OptimizerSettings, Precision, PretrainSettings

OPTIMIZER = OptimizerSettings(learning_rate=6e-4, betas=(0.9, 0.95), warmup_steps=10)


def step(name: str, sizes: Sizes) -> Found:
    """The loop's step at one shape."""
    samples, micro, steps = sizes.batches[name]
    config = fitting(sizes) if name == "7B" else sizes.shapes[name]
    per_token = flops_per_token(config, seen(packed(config, 0, samples)["documents"]))
    rows = trained(config, sizes.placement, (samples, micro, steps), "bf16", per_token)[WARMUP:]
    seconds = statistics.median(row["seconds"] for row in rows)
    tokens = samples * config.context / seconds
    return {
        "params": parameter_count(config),
        "layers": config.depth,
        "tokens_per_second": round(tokens),
        "flops_per_second": tokens * per_token,
        "mfu": statistics.median(row["mfu"] for row in rows),
        "memory_bytes": max(row["memory_bytes"] for row in rows),
        "planned_bytes": planned(config, samples, micro, sizes.placement),
        "loss": rows[-1]["loss"],
    }


def planned(config: ModelConfig, samples: int, micro: int, placement: Placement) -> int:
    """What `headrace plan` says of the same."""
    tokens = samples * config.context
    settings = PretrainSettings(
        context=config.context, batch_tokens=tokens, tokens=tokens, precision="bf16"
    )
    held = placement.model_copy(update={"micro_batch_tokens": micro * config.context})
    return device_bytes(config, settings, held).total


def fitting(sizes: Sizes) -> ModelConfig:
    """The 7B shape with as many of its layers as the plan says a GPU has room for."""
    config, (samples, micro, _) = sizes.shapes["7B"], sizes.batches["7B"]
    if not sizes.on_gpu:
        return config
    import torch

    room = 0.92 * torch.cuda.get_device_properties(0).total_memory
    cut = (replace(config, depth=depth) for depth in range(config.depth, 0, -1))
    return next(one for one in cut if planned(one, samples, micro, sizes.placement) < room)


def trained(
    config: ModelConfig,
    placement: Placement,
    batches: tuple[int, int, int],
    precision: Precision,
    per_token: float = 0.0,
) -> list[Found]:
    """The rows that the loop writes of its steps; no checkpoint is written."""
    samples, micro, steps = batches
    with tempfile.TemporaryDirectory() as folder:
        job = TrainJob(
            partial(_program, config),
            steps,
            samples,
            Path(folder),
            optimizer=OPTIMIZER,
            micro_samples=micro,
            precision=precision,
            checkpoint_seconds=math.inf,
            flops_per_token=per_token,
        )
        trainer = Trainer(job, placement, join(gpu=placement.gpus > 0), None)
        try:
            trainer.run()
        finally:
            trainer.close()
        return [json.loads(line) for line in (Path(folder) / METRICS).read_text().splitlines()]


def reference(sizes: Sizes) -> Found:
    """The losses of a small network on the CPU, in fp32."""
    rows = trained(sizes.small, Placement(threads=8), (32, 32, sizes.parity_steps), "fp32")
    return {"losses": [row["loss"] for row in rows]}


def parity(sizes: Sizes, exact: list[float]) -> Found:
    """How far losses on the device, in bf16, are from these, at most, and the last of both."""
    rows = trained(sizes.small, sizes.placement, (32, 32, sizes.parity_steps), "bf16")
    losses = [row["loss"] for row in rows]
    apart = [abs(loss - wanted) / wanted for loss, wanted in zip(losses, exact, strict=True)]
    return {"apart": max(apart), "last": [losses[-1], exact[-1]]}


def _program(config: ModelConfig) -> Program:
    """The network with its objective, on random documents."""
    return Program(CausalLM(build(config)), partial(packed, config))
