"""Workers that share rows (`model.context_parallel`): which can, and who shares with whom."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from cluster.errors import BadInput
from model.config import ModelConfig
from tasks.training.settings import ObjectiveSettings

if TYPE_CHECKING:
    from torch import nn

    from cluster.world import World

Rule = tuple[bool, str, object, str]
"""Whether it holds, of what, its value, and what is allowed."""


def check_context_parallel(config: ModelConfig, training: ObjectiveSettings, workers: int) -> None:
    """Raise BadInput when so many workers cannot share the rows of a training."""
    if workers > 1:
        check_rules("context_parallel", workers, _rules(config, training, workers))


def check_rules(name: str, workers: int, rules: Iterable[Rule]) -> None:
    """Raise BadInput for the first rule that a training by so many workers together breaks."""
    for holds, key, value, allowed in rules:
        if not holds:
            raise BadInput(
                f"placement.{name} is {workers}, and {key} is {value}: {allowed}; change one of "
                f"them, or set {name} to 1"
            )


def network_rules(config: ModelConfig, how: str) -> Iterator[Rule]:
    """What of a network can be `how`, shared or divided."""
    cells = config.recurrent and config.recurrent.cell
    yield cells is None, "model.recurrent.cell", cells, f"only attention can be {how}"
    positions, plain = config.positions, ("rope", "learned", "sinusoidal")
    yield positions in plain, "positions", positions, f"only {', '.join(plain)} can be {how}"
    for name in ("latent", "multi_token"):
        value = getattr(config, name)
        yield not value, name, value, f"only networks without can be {how}"


def split_context_of(module: "nn.Module", world: "World", size: int) -> None:
    """Let each `size` ranks in order share their rows. All ranks must call this together."""
    import torch.distributed as dist

    from model.context_parallel import ContextGroup, split_context

    for first in range(0, world.size, size):
        # Every rank makes every group, in this order, also those it is not in, or the others hang.
        group = dist.new_group(range(first, first + size))
        if first <= world.rank < first + size:
            split_context(module, ContextGroup(group, world.rank - first, size))


def _rules(config: ModelConfig, training: ObjectiveSettings, workers: int) -> Iterator[Rule]:
    objective = training.objective
    yield objective == "causal", "pretrain.objective", objective, "only causal can be shared"
    yield from network_rules(config, "shared")
    experts = config.experts
    yield (
        not experts,
        "model.experts",
        experts,
        "their loads are evened over whole rows",
    )
    for name, size in (("heads", config.heads), ("kv_heads", config.kv_heads)):
        yield size % workers == 0, f"model.{name}", size, "each worker needs as many of them"
    context = training.context
    yield context % workers == 0, "pretrain.context", context, "each worker needs as much of it"
