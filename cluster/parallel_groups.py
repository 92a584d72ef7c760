"""Which ranks have parts of one network, and which the same part, as DeepSpeed asks for it.

DeepSpeed takes such an object as `mpu`. It sums gradients over the data-parallel group only. In the
gradient norm it counts a parameter that all ranks of a model-parallel group have once, and those
marked `model_parallel` on each of them.
"""

from dataclasses import dataclass
from typing import Any

import torch.distributed as dist


@dataclass(frozen=True)
class ParallelGroups:
    """The two process groups of a rank."""

    model: Any
    data: Any

    def get_model_parallel_group(self) -> Any:
        """The ranks that have a network together."""
        return self.model

    def get_model_parallel_rank(self) -> int:
        """This rank's place among them."""
        return dist.get_rank(self.model)

    def get_model_parallel_world_size(self) -> int:
        """How many they are."""
        return dist.get_world_size(self.model)

    def get_data_parallel_group(self) -> Any:
        """The ranks that have the same part as this one."""
        return self.data

    def get_data_parallel_rank(self) -> int:
        """This rank's place among them."""
        return dist.get_rank(self.data)

    def get_data_parallel_world_size(self) -> int:
        """How many they are."""
        return dist.get_world_size(self.data)
