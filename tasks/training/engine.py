"""The DeepSpeed engine of a program: its network arranged for a placement, with its optimizer.

engine, peaks = start_engine(job, program, placement, layout, job.share(workers, samples))
"""

import functools
from collections import defaultdict
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from cluster.deepspeed_config import deepspeed_config
from cluster.deepspeed_import import load_deepspeed
from cluster.placement import Placement
from model.blocks import Block
from model.sharded import Shards
from model.stack import Stack
from tasks.training.job import Program, TrainJob
from tasks.training.micro_batches import Piece, sent
from tasks.training.optimizers import groups_of, make_optimizer
from tasks.training.tensor_parallel import ParallelLayout

Peak = tuple[str, float]


def start_engine(
    job: TrainJob,
    program: Program,
    placement: Placement,
    layout: ParallelLayout,
    share: tuple[int, int],
    shards: Shards | None = None,
) -> tuple[Any, list[Peak]]:
    """The engine, and name and peak learning rate of each parameter group. `share` is the samples
    of a micro-batch, and micro-batches a step, of each of the workers; `shards` are what this rank
    has of a program that was built shard by shard.
    """
    deepspeed = load_deepspeed("cuda" if placement.gpus else "cpu")
    deepspeed.utils.groups.mpu = layout.groups  # it keeps those of an engine before
    arrange(program.module, placement)
    groups = groups_of(program.module, job.optimizer, job.layer_decay)
    micro_batch, accumulation = share
    config = deepspeed_config(
        workers=layout.data_size,
        micro_batch=micro_batch,
        accumulation=accumulation,
        precision=job.precision,
        zero_stage=placement.zero_stage,
        offload=placement.offload,
        on_gpu=placement.gpus > 0,
        clip=job.optimizer.clip,
    )
    if shards is not None:
        _partition(program.module, shards, config)
    optimizer = make_optimizer(groups, job.optimizer)
    peaks = [(group["name"], group["lr"]) for group in optimizer.param_groups]
    engine, *_ = deepspeed.initialize(
        model=program.module, optimizer=optimizer, config=config, mpu=layout.groups
    )
    if layout.data_size == 1 and not placement.zero_stage:
        engine.enable_backward_allreduce = False  # it copies all gradients, to sum them with none
    if job.precision == "fp16":
        _without_scaler(engine)
    if placement.zero_stage in (1, 2):
        engine.optimizer.get_grad_norm_direct = functools.partial(_norm, engine.optimizer, layout)
    engine.train()
    return engine, peaks


@torch.no_grad()
def _partition(module: nn.Module, shards: Shards, config: dict[str, Any]) -> None:
    """Give DeepSpeed the shards of a network as it would cut them in ZeRO 3, weight by weight."""
    from deepspeed.runtime.zero.partition_parameters import Init

    init = Init(config_dict_or_path=config)
    init._enable_mem_efficient_linear()
    largest = max(parameter.numel() for parameter in module.parameters())
    room = torch.empty(largest, dtype=init.dtype, device=init.local_device)
    for parameter in module.parameters():
        if not parameter.is_meta:
            shards.keep(parameter, parameter)
        part, whole = shards.kept.pop(parameter), room[: parameter.numel()]
        own = whole[shards.rank * len(part) :][: len(part)]
        own.copy_(part[: len(own)])
        # A parameter without data takes none; it stays the object that the optimizer knows.
        made = nn.Parameter(whole.view(parameter.shape), requires_grad=parameter.requires_grad)
        made.__dict__.update(parameter.__dict__)
        torch.utils.swap_tensors(parameter, made)
        init._convert_to_deepspeed_param(parameter)
        parameter.partition()  # pyrefly: ignore[missing-attribute]
    for part in module.modules():
        for name, buffer in part.named_buffers(recurse=False):
            setattr(part, name, buffer.to(init.local_device))


def gradients(
    engine: Any, pieces: list[Piece], weights: list[float], scale: float
) -> tuple[tuple[str, ...], Tensor]:
    """Gradients of this rank's micro-batches, `scale` times too large; their mean loss, fp64, and
    what else they told after it, by these names.
    """
    accumulate(engine, len(pieces))
    # In fp64 their sum is exact, and so the same when other ranks add them up.
    total = torch.zeros((), dtype=torch.float64, device=engine.device)
    told = defaultdict[str, Tensor](lambda: torch.zeros_like(total))
    for index, (piece, weight) in enumerate(zip(pieces, weights, strict=True), 1):
        loss = weight * engine(**sent(piece, engine.device))
        _backward(engine, loss, scale)
        found = getattr(engine.module, "told", {})
        total += loss.detach() - weight * found.get("z_loss", 0.0)
        for name, value in found.items():
            told[name] = told[name] + weight * value.double()
        if index < len(pieces):
            engine.step()  # counts the micro-batch
    return tuple(told), torch.stack([total, *told.values()]) / len(pieces)


def _backward(engine: Any, loss: Tensor, scale: float) -> None:
    """ZeRO 1-3 take the scale out of the gradients by themselves, when they step."""
    if engine.zero_optimization_stage() == 0:
        engine.backward(loss if scale == 1 else loss * scale)
        return
    if scale != 1:
        engine.optimizer.override_loss_scale(scale)
    engine.backward(loss)


def clipped(engine: Any, layout: ParallelLayout, scale: float, most: float) -> Tensor | None:
    """In ZeRO 0, take the scale out of the gradients and clip them to a norm of at most so much;
    the norm they had. None in ZeRO 1-3, which do so when they step.
    """
    if engine.zero_optimization_stage():
        return None
    if scale != 1:
        found = [p.grad for p in engine.module.parameters() if p.grad is not None]
        torch._foreach_mul_(found, 1 / scale)
    parameters = list(engine.parameters())
    if not layout.splits:
        return nn.utils.clip_grad_norm_(parameters, most)
    divided, whole = (
        [p.grad for p in parameters if p.grad is not None and hasattr(p, "model_parallel") == own]
        for own in (True, False)
    )
    # Parts of a divided parameter add up over the team; what each has whole counts once.
    squares = [nn.utils.get_total_norm(gradients).square() for gradients in (divided, whole)]
    norm = (layout.team.sum(squares[0]) + squares[1]).sqrt()
    nn.utils.clip_grads_with_norm_(parameters, most, norm)
    return norm


def advance(engine: Any, rates: list[float], norm: Tensor | None) -> Tensor:
    """Step the optimizer at these rates of its groups; the gradient norm before clipping."""
    for group, rate in zip(engine.optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    engine.step()
    return torch.as_tensor(engine.get_global_grad_norm()) if norm is None else norm


def discard(engine: Any) -> None:
    """Drop the gradients of a step that is not made, in ZeRO 0."""
    engine.zero_grad()
    # DeepSpeed counts a micro-batch when it steps, and the last of these made no step.
    engine.micro_steps = 0


def _without_scaler(engine: Any) -> None:
    """Take away DeepSpeed's gradient scaler. In ZeRO 1-3 it steps once for each parameter group,
    after clipping gradients that are still scaled, and an overflow never lowers the scale.
    """
    engine.torch_autocast_z0_gradscaler = None
    if engine.zero_optimization_stage():
        engine.optimizer.torch_autocast_gradscaler = None


def _norm(
    optimizer: Any, layout: ParallelLayout, gradients: list[Tensor], parameters: list[nn.Parameter]
) -> Tensor:
    """The L2 norm, fp32, of a parameter group's gradients, of which each rank holds a part in ZeRO
    1 and 2; -1 where it is not finite. Of a divided network's parameters, those that all ranks of a
    team have count once.

    DeepSpeed rounds the sum of each rank to fp32, so that the last bit of its norm, and with it
    every clipped step, depends on the number of ranks.
    """
    total = torch.zeros((), dtype=torch.float64, device=optimizer.device)
    held = [g for g in gradients if not getattr(g, "_zero_padding", False)]
    for gradient, parameter in zip(held, parameters, strict=False):  # unmarked padding comes last
        if not layout.team.rank or hasattr(parameter, "model_parallel"):
            total += torch.linalg.vector_norm(gradient, dtype=torch.float64).square()
    dist.all_reduce(total, group=optimizer.dp_process_group)
    if layout.splits:
        dist.all_reduce(total, group=layout.team.group)
    norm = total.sqrt().float()
    return torch.where(norm.isfinite(), norm, -1.0)


def accumulate(engine: Any, micro_batches: int) -> None:
    """Let the next step be made of so many micro-batches, whatever the steps before were made of.

    DeepSpeed steps whenever the number of micro-batches so far divides by those of a step.
    """
    if engine.gradient_accumulation_steps() != micro_batches:
        share = engine.train_batch_size() // engine.gradient_accumulation_steps()
        engine.set_train_batch_size(share * micro_batches)
        engine.micro_steps = 0


def arrange(module: nn.Module, placement: Placement) -> None:
    """Let a network's layers trade time for memory, and be compiled, as the placement says."""
    for part in module.modules():
        if isinstance(part, Stack):
            part.activation_checkpointing = placement.activation_checkpointing
            if placement.compile and placement.zero_stage < 3:
                part.compile_layers()
        elif isinstance(part, Block) and placement.compile and placement.zero_stage == 3:
            # Weights are gathered block by block, by hooks that no compiled region may span.
            part.compile(dynamic=False)
