"""What a device can do, to say what share of it a training uses."""

import time

import psutil
import torch

from cluster.world import World
from tasks.training.process import is_fast
from tasks.training.settings import Precision

DENSE_HALF = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "B200": 2250e12}
"""FLOP/s in half precision of GPUs by a part of their name, from NVIDIA's data sheets, dense."""

HALF: dict[Precision, torch.dtype] = {
    "bf16": torch.bfloat16,
    "bf16_weights": torch.bfloat16,
    "fp16": torch.float16,
}


def peak_flops(device: torch.device, precision: Precision) -> float:
    """FLOP/s at best: the data sheet's, or what one matrix product reaches, small where the CPU has
    no such arithmetic and would take seconds.
    """
    if device.type == "cuda" and precision != "fp32":
        name = torch.cuda.get_device_name(device)
        known = [flops for part, flops in DENSE_HALF.items() if part in name]
        if known:
            return known[0]
    size = 8192 if device.type == "cuda" else 768 if is_fast(precision) else 128
    dtype = HALF.get(precision, torch.float32)
    matrix = torch.ones(size, size, device=device, dtype=dtype)
    return 2 * size**3 / min(_seconds(matrix) for _ in range(4))


def reads_late(world: World) -> bool:
    """Whether figures of a step are read when the device was given the next one."""
    return world.device.type == "cuda"


def memory_bytes(device: torch.device) -> int:
    """What this process holds now: on a GPU the most since the last call."""
    if device.type == "cuda":
        most = torch.cuda.max_memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        return most
    return int(psutil.Process().memory_info().rss)


def _seconds(matrix: torch.Tensor) -> float:
    started = time.perf_counter()
    _ = (matrix @ matrix)[0, 0].item()  # waits for the device
    return time.perf_counter() - started
