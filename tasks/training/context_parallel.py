"""Workers that share rows (`model.context_parallel`): which can, and who shares with whom."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cluster.errors import BadInput
from model.config import ModelConfig
from tasks.training.settings import ObjectiveSettings

if TYPE_CHECKING:
    from torch import nn

    from cluster.world import World


def check_context_parallel(config: ModelConfig, training: ObjectiveSettings, workers: int) -> None:
    """Raise BadInput when so many workers cannot share the rows of a training."""
    if workers == 1:
        return
    for holds, name, value, allowed in _rules(config, training, workers):
        if not holds:
            raise BadInput(
                f"placement.context_parallel is {workers}, and {name} is {value}: {allowed}; "
                "change one of them, or set context_parallel to 1"
            )


def split_context_of(module: "nn.Module", world: "World", size: int) -> None:
    """Let each `size` ranks in order share their rows. All ranks must call this together."""
    import torch.distributed as dist

    from model.context_parallel import ContextGroup, split_context

    for first in range(0, world.size, size):
        # Every rank makes every group, in this order, also those it is not in, or the others hang.
        group = dist.new_group(range(first, first + size))
        if first <= world.rank < first + size:
            split_context(module, ContextGroup(group, world.rank - first, size))


def _rules(
    config: ModelConfig, training: ObjectiveSettings, workers: int
) -> Iterator[tuple[bool, str, object, str]]:
    """What must hold, of what, its value, and what is allowed."""
    objective, positions = training.objective, config.positions
    yield objective == "causal", "pretrain.objective", objective, "only causal can be shared"
    cells = config.recurrent and config.recurrent.cell
    yield cells is None, "model.recurrent.cell", cells, "only attention can be shared"
    for name, size in (("heads", config.heads), ("kv_heads", config.kv_heads)):
        yield size % workers == 0, f"model.{name}", size, "each worker needs as many of them"
    context = training.context
    yield context % workers == 0, "pretrain.context", context, "each worker needs as much of it"
    plain = ("rope", "learned", "sinusoidal")
    yield positions in plain, "positions", positions, f"only {', '.join(plain)} can be shared"
    for name in ("experts", "latent", "multi_token"):
        value = getattr(config, name)
        yield not value, name, value, "only networks without can be shared"
