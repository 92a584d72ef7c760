"""The state of a training as named tensors, whatever the ZeRO stage and the number of workers.

    model.<parameter or buffer>     fp32 weights
    exp_avg.<parameter>             what the optimizer keeps of it (`tasks.training.optimizers`),
    exp_avg_sq.<parameter>          here Adam's moments

ZeRO 1-3 keep slices of flattened groups; here each tensor is put together again, one at a time, and
the ranks take turns in keeping one to write. So a checkpoint taken by two workers in ZeRO 3 can be
continued by one in ZeRO 0.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

Read = Callable[[str], Tensor]


def share(engine: Any, rank: int, size: int) -> dict[str, Tensor]:
    """Copies of every `size`-th tensor of the state. All ranks must call this together."""
    return {
        name: _owned(tensor)
        for index, (name, tensor) in enumerate(named_state(engine))
        if index % size == rank
    }


def write_weights(engine: Any, path: Path, leads: bool) -> None:
    """Write all fp32 weights to one file on the leading rank. All ranks must call this together."""
    from safetensors.torch import save_file

    kept = {}
    for name, tensor in named_weights(engine):
        if leads:
            kept[name] = _owned(tensor)
    if leads:
        temporary = path.with_name(f".{path.name}")
        save_file(kept, temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)


def load_weights(module: nn.Module, read: Read) -> None:
    """Copy weights into a module that DeepSpeed does not hold yet; `read` gets them by name."""
    with torch.no_grad():
        for name, tensor in _named_tensors(module):
            tensor.copy_(read(f"model.{name}"))


def load_moments(engine: Any, read: Read, step: int) -> None:
    """Give the engine's optimizer the moments it had after `step` steps."""
    stage = engine.zero_optimization_stage()
    base = engine.optimizer.optimizer if stage else engine.optimizer
    for flat, moments in _optimized(engine, stage):
        zeros = {key: torch.zeros_like(flat) for key in moments}
        base.state[flat] = {"step": torch.tensor(float(step), device=flat.device), **zeros}
    _link_slices(engine, stage)
    for name, parameter, moments in _moments(engine, stage):
        for key in moments:
            _set_moment(engine, parameter, key, read(f"{key}.{name}"))


def named_state(engine: Any) -> Iterator[tuple[str, Tensor]]:
    """Every tensor of the state by name, each valid until the next is asked for."""
    from deepspeed.utils import safe_get_full_optimizer_state

    yield from named_weights(engine)
    stage = engine.zero_optimization_stage()
    _link_slices(engine, stage)
    for name, parameter, moments in _moments(engine, stage):
        for key in moments:
            if stage:
                yield f"{key}.{name}", safe_get_full_optimizer_state(parameter, key)
            else:
                kept = engine.optimizer.state[parameter].get(key)  # None: it had no gradient yet
                yield f"{key}.{name}", torch.zeros_like(parameter) if kept is None else kept


def named_weights(engine: Any) -> Iterator[tuple[str, Tensor]]:
    """Every weight by name; in ZeRO 3 each is gathered from all ranks while it is held."""
    from deepspeed.runtime.zero import GatheredParameters

    sharded = engine.zero_optimization_stage() == 3
    for name, tensor in _named_tensors(engine.module):
        with GatheredParameters([tensor], enabled=sharded and isinstance(tensor, nn.Parameter)):
            yield f"model.{name}", tensor


def describe(module: nn.Module) -> dict[str, list[int]]:
    """The shape of every tensor of a module's state, for comparison before loading."""
    return {name: list(tensor.shape) for name, tensor in _named_tensors(module)}


def _named_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters, shared ones once, and the buffers that belong to the state."""
    persistent = module.state_dict().keys()
    yield from module.named_parameters()
    yield from ((name, buffer) for name, buffer in module.named_buffers() if name in persistent)


def _moments(engine: Any, stage: int) -> Iterator[tuple[str, nn.Parameter, tuple[str, ...]]]:
    """Every trained parameter by name, with the names of what the optimizer keeps of it."""
    of = {id(flat): moments for flat, moments in _optimized(engine, stage)}
    shared = next(iter(of.values()))  # sharded: the same for all
    for name, parameter in engine.module.named_parameters():
        if parameter.requires_grad:
            yield name, parameter, shared if stage else of[id(parameter)]


def _optimized(engine: Any, stage: int) -> list[tuple[Tensor, tuple[str, ...]]]:
    """The tensors that the base optimizer steps, parameters or this rank's flat slices of them,
    each with the names of what it keeps of it.
    """
    if not stage:
        groups = engine.optimizer.param_groups
        return [(tensor, group["moments"]) for group in groups for tensor in group["params"]]
    moments = engine.optimizer.optimizer.param_groups[0]["moments"]
    if stage == 3:
        flats = engine.optimizer.fp32_partitioned_groups_flat
    else:
        flats = engine.optimizer.single_partition_of_fp32_groups
    return [(flat, moments) for flat in flats]


def _link_slices(engine: Any, stage: int) -> None:
    """Let each parameter find its slice of the flat moments in ZeRO 1 and 2.

    DeepSpeed does so by itself after the first group's first step, when the states of the other
    groups do not exist yet; then it takes it for done.
    """
    if stage in (1, 2):
        engine.optimizer._hp_optimizer_states_linked = False
        engine.optimizer._lazy_init_hp_params_optimizer_state()


def _set_moment(engine: Any, parameter: Any, key: str, value: Tensor) -> None:
    from deepspeed.utils import safe_set_full_optimizer_state, safe_set_local_optimizer_state

    value = value.to(engine.device)
    stage = engine.zero_optimization_stage()
    if stage == 0:
        engine.optimizer.state[parameter][key].copy_(value)
    elif stage == 3:
        # The full setter does not know that the last rank's slice is padded.
        length, rank = parameter.ds_tensor.numel(), torch.distributed.get_rank()
        padding = length * torch.distributed.get_world_size() - value.numel()
        slices = nn.functional.pad(value.flatten(), (0, padding))
        safe_set_local_optimizer_state(parameter, slices.narrow(0, rank * length, length), key)
    else:
        safe_set_full_optimizer_state(parameter, value, key)


def _owned(tensor: Tensor) -> Tensor:
    """A copy on the CPU that outlives the next step."""
    return tensor.detach().to("cpu", copy=True).contiguous()
