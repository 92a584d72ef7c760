"""The state of a training as named tensors, whatever the ZeRO stage and the number of workers.

    model.<parameter or buffer>@0     fp32 weights
    exp_avg.<parameter>@0             what the optimizer keeps of it (`tasks.training.optimizers`),
    exp_avg_sq.<parameter>@4096       here Adam's moments

In ZeRO 0 every rank has all of it, and the ranks take turns in writing a tensor. ZeRO 1-3 keep
slices of flattened groups; there each rank writes its own, named by the place of their first number
in the tensor. So a checkpoint taken by two workers in ZeRO 3 can be continued by one in ZeRO 0.
Where a network is divided (`tasks.training.tensor_parallel`) each part of a tensor has a name of
its own,

    model.<parameter>[0/2]@0

What is frozen is no part of it: whoever builds the network has it. With early stopping the first
rank has the best weights so far, too, whole:

    best.model.<parameter>@0
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from cluster.world import World
from model.optim import is_given
from model.sharded import Shards
from tasks.training.tensor_parallel import ParallelLayout

_AS_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
Read = Callable[[str], Tensor]
BEST = "best."


class WeightsDiffer(RuntimeError):
    """The ranks no longer hold the same weights."""


def share(engine: Any, layout: ParallelLayout) -> dict[str, Tensor]:
    """This rank's part of the state, as flat tensors on the CPU. What is there already is not
    copied: it stays as it is until the next update.
    """
    stage = engine.zero_optimization_stage()
    _link_slices(engine, stage)
    moments = {name: keys for name, _, keys in _moments(engine, stage)}
    found = {}
    for index, (name, tensor) in enumerate(_named_tensors(engine.module)):
        mine = index % layout.data_size == layout.data_rank
        for key in (None, *moments.get(name, ())) if layout.keeps(name) else ():
            start, held = _held(engine, tensor, key, mine=mine)
            if held.numel():
                called = f"{layout.name(key or 'model', name)}@{start}"
                found[called] = held.detach().flatten().to("cpu")
    return found


def check_alike(engine: Any, world: World, layout: ParallelLayout, step: int) -> None:
    """Raise WeightsDiffer on all ranks when one of them holds other weights than the first that
    should hold the same: a bit of its memory has flipped. In ZeRO 3 no two ranks hold the same.
    """
    if world.size == 1 or engine.zero_optimization_stage() == 3:
        return
    names, tensors = zip(*engine.module.named_parameters(), strict=True)
    # The bits as integers, whose sum is exact in any order and which any one flip changes.
    sums = torch.stack([t.detach().view(_AS_INTEGERS[t.element_size()]).sum() for t in tensors])
    everywhere = world.gather(sums.tolist())
    for rank, found in enumerate(everywhere):
        firsts = [everywhere[layout.first(name, rank)] for name in names]
        if different := [n for i, n in enumerate(names) if found[i] != firsts[i][i]]:
            raise WeightsDiffer(
                f"after step {step} the weights of the ranks differ: {different[0]} of rank "
                f"{rank}; they are not saved. Run the same command again to go on from the newest "
                "checkpoint; if this comes again, that machine's memory is faulty"
            )


def copy_weights(engine: Any, layout: ParallelLayout, leads: bool) -> dict[str, Tensor]:
    """Copies of all fp32 weights, whole, on the leading rank; nothing on the others. All ranks must
    call this together.
    """
    kept = {}
    for name, tensor in named_weights(engine, layout):
        if leads:
            kept[name] = _owned(tensor)
    return kept


def load_weights(module: nn.Module, read: Read, shards: Shards | None = None) -> None:
    """Copy weights into a module that DeepSpeed does not hold yet; `read` gets them by name. Of
    those on the meta device the shards are kept, or what is read becomes the module's own.
    """
    found = {}
    with torch.no_grad():
        for name, tensor in _named_tensors(module):
            if not tensor.is_meta:
                tensor.copy_(read(f"model.{name}").view_as(tensor))
            elif shards and isinstance(tensor, nn.Parameter):
                shards.keep(tensor, read(f"model.{name}"))
            else:
                found[name] = read(f"model.{name}").view(tensor.shape)
    module.load_state_dict(found, strict=False, assign=True)


def read_best(module: nn.Module, read: Read) -> dict[str, Tensor]:
    """The best weights that a checkpoint holds beside the newest."""
    tensors = _named_tensors(module)
    shapes = {name: getattr(tensor, "ds_shape", tensor.shape) for name, tensor in tensors}
    return {f"model.{n}": read(f"{BEST}model.{n}").view(shape) for n, shape in shapes.items()}


def load_moments(engine: Any, layout: ParallelLayout, read: Read, step: int) -> None:
    """Give the engine's optimizer the moments it had after `step` steps; `read` gets them whole."""
    stage = engine.zero_optimization_stage()
    base = engine.optimizer.optimizer if stage else engine.optimizer
    for flat, moments in _optimized(engine, stage):
        zeros = {key: torch.zeros_like(flat) for key in moments}
        base.state[flat] = {"step": torch.tensor(float(step), device=flat.device), **zeros}
    _link_slices(engine, stage)
    for name, parameter, moments in _moments(engine, stage):
        # DeepSpeed made its fp32 copies of weights that were rounded to bf16.
        rounded = [] if parameter.dtype == torch.float32 else [None]
        for key in (*rounded, *moments):
            own = layout.part(name, read(f"{key or 'model'}.{name}"))
            _set_kept(engine, parameter, key, own)


def named_weights(engine: Any, layout: ParallelLayout) -> Iterator[tuple[str, Tensor]]:
    """Every weight by name, whole, in fp32; in ZeRO 3 each is gathered from all ranks while it is
    held, and of bf16 weights their copies.
    """
    from deepspeed.runtime.zero import GatheredParameters
    from deepspeed.utils import safe_get_full_fp32_param

    sharded = engine.zero_optimization_stage() == 3
    for name, tensor in _named_tensors(engine.module):
        if tensor.dtype == torch.bfloat16 and tensor.requires_grad:
            yield f"model.{name}", layout.whole(name, safe_get_full_fp32_param(tensor))
            continue
        with GatheredParameters([tensor], enabled=sharded and isinstance(tensor, nn.Parameter)):
            yield f"model.{name}", layout.whole(name, tensor)


def describe(module: nn.Module) -> dict[str, list[int]]:
    """The shape of every tensor of a module's state, for comparison before loading."""
    return {name: list(tensor.shape) for name, tensor in _named_tensors(module)}


def _named_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters, shared ones once, and the buffers that belong to the state; no frozen ones."""
    persistent = module.state_dict().keys()
    yield from ((name, p) for name, p in module.named_parameters() if not is_given(p))
    yield from ((name, buffer) for name, buffer in module.named_buffers() if name in persistent)


def _held(engine: Any, tensor: Tensor, key: str | None, *, mine: bool) -> tuple[int, Tensor]:
    """What this rank is to write of a tensor, or of a moment of it, and where that begins; of
    those that all ranks have, it is all or nothing.
    """
    stage = engine.zero_optimization_stage()
    parameter: Any = tensor if isinstance(tensor, nn.Parameter) else None
    if stage == 3 and parameter is not None:
        held = _slice_of_3(parameter, key)
        start = torch.distributed.get_rank() * held.numel()
        return start, held[: max(0, parameter.ds_numel - start)]  # the last one is padded
    if stage and parameter is not None and parameter.requires_grad:
        mapping = parameter._hp_mapping
        if mapping is None:
            return 0, tensor.new_empty(0)
        return mapping.lp_fragment_address.start, mapping.get_hp_fragment(key)
    if not mine:
        return 0, tensor.new_empty(0)
    if parameter is None:
        return 0, tensor.clone()  # a forward pass may change it
    if key is None:
        return 0, tensor
    kept = engine.optimizer.state[tensor].get(key)  # None: it had no gradient yet
    return 0, torch.zeros_like(tensor) if kept is None else kept


def _slice_of_3(parameter: Any, key: str | None) -> Tensor:
    from deepspeed.utils import safe_get_local_fp32_param, safe_get_local_optimizer_state

    if not parameter.requires_grad:
        return parameter.ds_tensor.flatten()
    if key is None:
        return safe_get_local_fp32_param(parameter)
    return safe_get_local_optimizer_state(parameter, key)


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


def _set_kept(engine: Any, parameter: Any, key: str | None, value: Tensor) -> None:
    """Set a moment of a parameter, or, without a key, the fp32 copy of its weights."""
    value = value.to(engine.device)
    stage = engine.zero_optimization_stage()
    if stage == 0:
        engine.optimizer.state[parameter][key].copy_(value.view_as(parameter))
    elif stage == 3:
        # The full setter does not know that the last rank's slice is padded.
        length, rank = parameter.ds_tensor.numel(), torch.distributed.get_rank()
        padding = length * torch.distributed.get_world_size() - value.numel()
        slices = nn.functional.pad(value.flatten(), (0, padding))
        mine = slices.narrow(0, rank * length, length)
        engine.optimizer.set_local_hp_param(mine, parameter, key)
    else:
        parameter.set_full_hp_param(value, key)


def _owned(tensor: Tensor) -> Tensor:
    """A copy on the CPU that outlives the next step."""
    return tensor.detach().to("cpu", copy=True).contiguous()
