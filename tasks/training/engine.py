"""The DeepSpeed engine of a program: its network arranged for a placement, with its optimizer.

engine, peaks = start_engine(job, program, placement, share=(world_size, micro, accumulation))
"""

from typing import Any

from torch import nn

from cluster.deepspeed_config import deepspeed_config
from cluster.deepspeed_import import load_deepspeed
from cluster.placement import Placement
from model.blocks import Block
from model.transformer import Stack
from tasks.training.job import Program, TrainJob
from tasks.training.optimizers import make_optimizer


def start_engine(
    job: TrainJob, program: Program, placement: Placement, share: tuple[int, int, int]
) -> tuple[Any, list[float]]:
    """The engine, and the peak learning rate of each parameter group. `share` is the number of
    workers, the samples of a micro-batch, and micro-batches a step.
    """
    deepspeed = load_deepspeed("cuda" if placement.gpus else "cpu")
    arrange(program.module, placement)
    groups = program.groups or _groups(program.module, job.optimizer.weight_decay)
    optimizer = make_optimizer(groups, job.optimizer)
    peaks = [group["lr"] for group in optimizer.param_groups]
    workers, micro_batch, accumulation = share
    config = deepspeed_config(
        workers=workers,
        micro_batch=micro_batch,
        accumulation=accumulation,
        precision=job.precision,
        zero_stage=placement.zero_stage,
        offload=placement.offload,
        clip=job.optimizer.clip,
    )
    engine, *_ = deepspeed.initialize(model=program.module, optimizer=optimizer, config=config)
    if workers == 1 and not placement.zero_stage:
        engine.enable_backward_allreduce = False  # it copies all gradients, to sum them with none
    engine.train()
    return engine, peaks


def arrange(module: nn.Module, placement: Placement) -> None:
    """Let a network's layers trade time for memory, and be compiled, as the placement says."""
    for part in module.modules():
        if isinstance(part, Stack):
            part.recompute = placement.recompute
        elif isinstance(part, Block) and placement.compile:
            part.compile(dynamic=False)


def _groups(module: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Matrices with weight decay, gains and biases without."""
    matrices = [p for p in module.parameters() if p.ndim >= 2]
    vectors = [p for p in module.parameters() if p.ndim < 2]
    decayed = {"params": matrices, "weight_decay": weight_decay}
    return [g for g in (decayed, {"params": vectors, "weight_decay": 0.0}) if g["params"]]
