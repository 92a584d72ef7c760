"""The peers' networks: as many tokens, on the same device, in bf16, with fused AdamW."""

import importlib.util
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gpu_parts.sizes import WARMUP, Found, Sizes, packed, wait


def nanogpt(sizes: Sizes, file: Path) -> Found:
    """nanoGPT's GPT-2 of its model.py, as its train.py steps it."""
    peer, config = loaded(file, "nanogpt_model"), sizes.shapes["124M"]
    shape = {"block_size": config.context, "vocab_size": config.vocab_size, "bias": True}
    model = compiled(peer.GPT(peer.GPTConfig(**shape)), sizes)
    return steps(model, lambda x, y: model(x, y)[1], sizes)


def nanochat(sizes: Sizes, folder: Path) -> Found:
    """nanochat's decoder with as many layers, of the same width."""
    sys.path.insert(0, str(folder))
    from nanochat.gpt import GPT, GPTConfig

    config = sizes.shapes["124M"]
    plain = GPT(GPTConfig(sequence_len=config.context, vocab_size=config.vocab_size))
    plain.to(sizes.device).init_weights()
    model = compiled(plain, sizes)
    return steps(model, model, sizes)


def compiled(model: Any, sizes: Sizes) -> Any:
    """A network on the device, compiled where that is a GPU."""
    model = model.to(sizes.device)
    return torch.compile(model, dynamic=False) if sizes.on_gpu else model


def steps(model: Any, loss_of: Callable[[Tensor, Tensor], Tensor], sizes: Sizes) -> Found:
    """Tokens a second of a network's steps on the batches that ours has, one document a row."""
    config, (samples, _, count) = sizes.shapes["124M"], sizes.batches["124M"]
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), fused=True)
    torch.set_float32_matmul_precision("high")
    times = []
    for number in range(count):
        pairs = list(micro_batches(number, sizes))
        wait(sizes.device)
        started = time.perf_counter()
        for x, y in pairs:
            pair = (half.to(sizes.device, non_blocking=True) for half in (x, y))
            with torch.autocast(sizes.device, torch.bfloat16):
                (loss_of(*pair) / len(pairs)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        wait(sizes.device)
        times.append(time.perf_counter() - started)
    return {
        "params": sum(p.numel() for p in model.parameters()),
        "tokens_per_second": round(samples * config.context / statistics.median(times[WARMUP:])),
        "memory_bytes": torch.cuda.max_memory_allocated() if sizes.on_gpu else None,
    }


def micro_batches(number: int, sizes: Sizes) -> Iterator[tuple[Tensor, Tensor]]:
    """Inputs and targets of a step, as many at a time as ours has."""
    samples, micro, _ = sizes.batches["124M"]
    batch = packed(sizes.shapes["124M"], number * samples, samples)
    x, y = (torch.from_numpy(batch[name]) for name in ("inputs", "targets"))
    if sizes.on_gpu:
        x, y = x.pin_memory(), y.pin_memory()
    yield from zip(x.split(micro), y.split(micro), strict=True)


def loaded(path: Path, name: str) -> Any:
    """A Python file as a module."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
