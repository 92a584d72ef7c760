"""What this machine has: CPUs, network interfaces, memory for plans that must fit into it."""

import os
import subprocess
from functools import cache
from pathlib import Path

import psutil

CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def cpus() -> int:
    """CPUs that this process may run on; all of them where the system does not say (macOS)."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def interface_of(address: str) -> str | None:
    """The network interface of this machine that has an address."""
    interfaces = psutil.net_if_addrs().items()
    return next((name for name, own in interfaces if address in {one.address for one in own}), None)


def main_memory() -> int:
    """Bytes of main memory that this process may use: the machine's, or its container's share."""
    total = psutil.virtual_memory().total
    limit = CGROUP_LIMIT.read_text().strip() if CGROUP_LIMIT.exists() else "max"
    return total if limit == "max" else min(total, int(limit))


def gpus() -> int:
    """GPUs of this machine."""
    return len(_gpu_memories())


def gpu_memory() -> int | None:
    """Bytes of this machine's smallest GPU, as its driver says; None when there is none here."""
    return min(_gpu_memories(), default=None)


@cache
def _gpu_memories() -> list[int]:
    """Bytes of each GPU. The driver is asked, not the devices: nothing is started on them."""
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
        return [int(line) * 2**20 for line in told.stdout.splitlines()]
    except (OSError, ValueError, subprocess.SubprocessError):
        return []
