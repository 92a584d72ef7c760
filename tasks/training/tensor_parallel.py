"""Ranks that have a network together (`model.tensor_parallel`): what can be divided, and by whom.

    layout = divided(module, world, placement.tensor_parallel)

Ranks in a row are a team: each has a part of the network, and all work on the same samples. Those
at the same place of every team have the same part, and are data parallel.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cluster.placement import Placement
from model.config import ModelConfig
from tasks.training.context_parallel import Rule, check_rules, network_rules
from tasks.training.settings import PretrainSettings

if TYPE_CHECKING:
    from torch import Tensor, nn

    from cluster.parallel_groups import ParallelGroups
    from cluster.world import World
    from model.tensor_parallel import Split, Team

    Read = Callable[[str], Tensor]


@dataclass(frozen=True)
class ParallelLayout:
    """A rank's team, its place among the ranks with the same part, and what is divided how.

    A network that is not divided is a team of one.
    """

    team: "Team"
    data_rank: int
    data_size: int
    groups: "ParallelGroups | None" = None
    splits: dict[str, "Split"] = field(default_factory=dict)

    def name(self, key: str, parameter: str) -> str:
        """What this rank's part of a tensor is called in a checkpoint, beside the others'."""
        own = parameter in self.splits
        return _part_name(f"{key}.{parameter}", self.team.rank, self.team.size if own else 1)

    def part(self, parameter: str, whole: "Tensor") -> "Tensor":
        """This rank's part of a parameter, or of what is kept of it."""
        split = self.splits.get(parameter)
        return whole if split is None else split.part(whole, self.team)

    def keeps(self, parameter: str) -> bool:
        """Whether the ranks at this place of the teams are to save a parameter: their part, and the
        first in the teams also what all have.
        """
        return parameter in self.splits or not self.team.rank

    def first(self, parameter: str, rank: int) -> int:
        """The first of the ranks that hold the same of a parameter as this one."""
        return rank % self.team.size if parameter in self.splits else 0

    def whole(self, parameter: str, own: "Tensor") -> "Tensor":
        """The whole of a parameter; all ranks of the team must call this together."""
        if parameter not in self.splits:
            return own
        return self.splits[parameter].join(self.team.gather(own))


def check_tensor_parallel(
    config: ModelConfig, training: PretrainSettings, placement: Placement
) -> None:
    """Raise BadInput when workers cannot have a network together as the placement says."""
    if (workers := placement.tensor_parallel) > 1:
        check_rules("tensor_parallel", workers, _rules(config, training, placement))


def whole_reader(read: "Read", module: "nn.Module", size: int) -> "Read":
    """Reads whole tensors of a checkpoint of teams of this size, by the names of a module that is
    not divided.
    """
    from model.tensor_parallel import splits

    found = splits(module)

    def whole(name: str) -> "Tensor":
        # What a tensor is, `model` or a moment, stands before the first dot.
        split = found.get(name.partition(".")[2])
        if split is None or size == 1:
            return read(name)
        return split.join([read(_part_name(name, rank, size)) for rank in range(size)]).flatten()

    return whole


def divided(module: "nn.Module", world: "World", size: int) -> ParallelLayout:
    """Divide a module among each `size` ranks in order. All ranks must call this together."""
    import torch.distributed as dist

    from cluster.parallel_groups import ParallelGroups
    from model.tensor_parallel import Team, divide, splits

    if size == 1:
        return ParallelLayout(Team(), world.rank, world.size)
    place, data_rank, data_size = world.rank % size, world.rank // size, world.size // size
    # Every rank makes every group, in this order, also those it is not in, or the others hang.
    teams = [dist.new_group(range(first, first + size)) for first in range(0, world.size, size)]
    alike = [dist.new_group(range(first, world.size, size)) for first in range(size)]
    team = Team(teams[data_rank], place, size)
    # The splits before dividing: they tell the shapes of the whole.
    groups, found = ParallelGroups(team.group, alike[place]), splits(module)
    divide(module, team)
    return ParallelLayout(team, data_rank, data_size, groups, found)


def _part_name(name: str, rank: int, size: int) -> str:
    return f"{name}[{rank}/{size}]" if size > 1 else name


def _rules(config: ModelConfig, training: PretrainSettings, placement: Placement) -> Iterator[Rule]:
    workers = placement.tensor_parallel
    yield from network_rules(config, "divided")
    for name, size in _divided_sizes(config):
        yield size % workers == 0, f"model.{name}", size, "each worker needs as many of them"
    norm = config.qk_norm
    yield norm != "all", "qk_norm", norm, "a norm over all heads needs them in one place"
    drops = placement.compile and config.dropout > 0
    why = "compiled, workers cannot draw some numbers alike and others not: compile must be false"
    yield not drops, "dropout", config.dropout, why
    objective, two = training.objective, "replaced_token_detection"
    yield objective != two, "pretrain.objective", objective, "it trains two networks, not one"
    optimizer = training.optimizer.name
    yield optimizer != "muon", "pretrain.optimizer.name", optimizer, "it needs whole matrices"


def _divided_sizes(config: ModelConfig) -> Iterator[tuple[str, int]]:
    """What each worker of a team has as much of."""
    yield from (("heads", config.heads), ("kv_heads", config.kv_heads))
    found = [config.layer_experts(layer) for layer in range(config.depth)]
    if None in found:
        yield "ffn_width", config.ffn_width
    if experts := config.experts:
        yield "experts.routed", experts.routed
        yield "experts.shared x width", experts.shared * experts.width
