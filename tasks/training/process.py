"""What the process of a training is set to: threads, signals, the seed of dropout."""

import contextlib
import signal
import threading
from collections.abc import Iterator

import numpy as np
import torch

from cluster.world import World
from tasks.training.settings import Precision


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """Use this many CPU threads, and as many as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def terminated(event: threading.Event) -> Iterator[None]:
    """Set the event on SIGTERM and on SIGINT, by which Ray cancels; in the main thread alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGTERM, signal.SIGINT)
    # Only noted: the step under way is finished and saved first.
    before = [signal.signal(number, lambda *_: event.set()) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def seed_dropout(seed: int, step: int, world: World, place: int) -> None:
    """Make dropout a function of seed, step and a place among the workers."""
    # Hashed: neighbouring seeds, steps and places must not share their numbers.
    value = int(np.random.SeedSequence([seed, step, place]).generate_state(1)[0])
    torch.default_generator.manual_seed(value)
    if world.device.type == "cuda":
        torch.cuda.manual_seed(value)


def is_fast(precision: Precision) -> bool:
    """Whether PyTorch multiplies such matrices on this CPU by more than a plain loop."""
    if precision in ("bf16", "bf16_weights"):
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return precision == "fp32" or bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())
