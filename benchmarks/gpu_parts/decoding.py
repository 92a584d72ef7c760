"""Greedy decoding of the 7B shape in bf16."""

import statistics
import time

import numpy as np
import torch

from gpu_parts.sizes import Found, Sizes, wait
from model.encoder_decoder import build
from model.flops import parameter_count
from model.generation import Ending, stream

BANDWIDTH = {"H200": 4.8e12, "H100": 3.35e12, "A100": 2.04e12}
"""Bytes a second, from NVIDIA's data sheets."""


def decoding(sizes: Sizes) -> Found:
    """Tokens a second, and bytes that a step must read over what the device can."""
    config, (prompt, count) = sizes.shapes["7B"], sizes.decoded
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(sizes.device):
            network = build(config).eval()
    finally:
        torch.set_default_dtype(torch.float32)
    weights = 2 * (parameter_count(config) - config.vocab_size * config.width)
    token = 4 * config.depth * config.kv_heads * config.head_dim  # keys and values of one, in bytes
    found: Found = {}
    for rows in (1, 8, 64):
        prompts = torch.randint(config.vocab_size, (rows, prompt)).tolist()
        times = []
        for _ in stream(network, prompts, Ending(count), compiled=sizes.on_gpu):
            wait(sizes.device)
            times.append(time.perf_counter())
        # The first steps read the prompts, and compile.
        seconds = statistics.median(np.diff(times)[count // 8 :])
        read, most = weights + rows * token * (prompt + count / 2), bandwidth(sizes)
        found[f"batch {rows}"] = {
            "tokens_per_second": round(rows / seconds, 1),
            "bandwidth": round(read / seconds / most, 3) if most else None,
        }
    return found


def bandwidth(sizes: Sizes) -> float | None:
    """What the device reads at best, in bytes a second; None where that is not known."""
    name = torch.cuda.get_device_name() if sizes.on_gpu else ""
    return next((rate for part, rate in BANDWIDTH.items() if part in name), None)
