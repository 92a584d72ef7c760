"""DeepSpeed, imported quickly and quietly.

Four defaults are worth undoing. Its autotuner, which no training uses, imports MLflow (3 s). Its
Muon, which none uses either, loads PyTorch's compiler (2 s) where ZeRO 1 or 2 imports it. Its
logger writes to stdout, where only results belong. And it tries the C++ compiler on each of its
kernels, then compiles one for collectives on the CPU (30 s), which gloo does as well.
"""

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Literal

Device = Literal["cpu", "cuda"]


def load_deepspeed(device: Device) -> ModuleType:
    """The `deepspeed` module, set up for one kind of device for the life of this process.

    Raises RuntimeError when this process has used it for the other kind already.
    """
    if "deepspeed" not in sys.modules:
        os.environ["DS_ACCELERATOR"] = device
    with _hidden("mlflow"):
        import deepspeed
    from deepspeed.accelerator import get_accelerator
    from deepspeed.runtime import compiler

    if (name := get_accelerator().device_name()) != device:
        raise RuntimeError(f"DeepSpeed runs on {name} in this process, {device} was asked for")
    compiler.compile = lambda: compiler.dummy_decorator  # what its Muon compiles itself with
    deepspeed.ops.__compatible_ops__ = {}  # no probing, no compiling: nothing of it is used
    logger = logging.getLogger("DeepSpeed")
    logger.handlers.clear()
    logger.propagate = True
    return deepspeed


@contextlib.contextmanager
def _hidden(name: str) -> Iterator[None]:
    """Let imports of a module that is not loaded yet fail."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # pyrefly: ignore[unsupported-operation]
    try:
        yield
    finally:
        del sys.modules[name]
