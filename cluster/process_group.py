"""The process group of a training's workers, over the network by which Ray knows each node.

    TorchTrainer(..., torch_config=ProcessGroup(backend="gloo"))

Left alone, gloo takes the address that the host's own name stands for, which on many a host is the
loopback, and the workers wait for each other in vain.
"""

import os
from typing import Any

import ray
from ray.train.torch import TorchConfig
from ray.train.torch.config import _TorchBackend

from cluster.machine import interface_of


class ProcessGroup(TorchConfig):
    """Ray Train's, whose workers first choose their interface."""

    @property
    def backend_cls(self) -> Any:
        """What sets the group up."""
        return _Backend


class _Backend(_TorchBackend):
    def on_start(self, worker_group: Any, backend_config: TorchConfig) -> None:
        worker_group.execute(choose_interface)
        super().on_start(worker_group, backend_config)


def choose_interface() -> str | None:
    """Have gloo and nccl of this process use the interface that has Ray's address of this node,
    unless the user has named one; its name. None where no interface has that address.
    """
    name = interface_of(ray.util.get_node_ip_address())
    if name:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={name}")  # exactly, not what begins so
    return name
