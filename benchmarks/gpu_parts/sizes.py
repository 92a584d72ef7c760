"""What is measured: the shapes, as they are published, and batches of random documents."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cluster.placement import Placement
from model.config import ModelConfig
from model.presets import preset
from model.shapes import from_depth
from tasks.tokens.batches import Batch, assemble

if TYPE_CHECKING:
    import torch

DOCUMENT = 600
"""Mean tokens of a document."""
WARMUP = 4
Found = dict[str, Any]


def _published() -> dict[str, ModelConfig]:
    return {
        "124M": replace(preset("gpt2"), vocab_size=50304, context=1024),
        "1.5B": replace(preset("gpt2-xl"), vocab_size=50304, context=1024),
        "7B": replace(preset("llama-2-7b"), context=4096),
    }


@dataclass(frozen=True)
class Sizes:
    """Of a benchmark on a device; a test has smaller ones."""

    device: str = "cuda"
    shapes: Mapping[str, ModelConfig] = field(default_factory=_published)
    batches: Mapping[str, tuple[int, int, int]] = field(
        default_factory=lambda: {"124M": (32, 16, 30), "1.5B": (16, 8, 12), "7B": (8, 2, 12)}
    )
    """Samples of a batch, of those at a time, and steps."""
    positions: int = 16_384
    """Of the LM head's loss."""
    product: int = 8192
    """Rows and columns of the factors of a matrix product."""
    decoded: tuple[int, int] = (128, 64)
    """Tokens of a prompt, and those that are written."""
    small: ModelConfig = field(
        default_factory=lambda: from_depth(4, vocab_size=512, context=256, width=128, heads=4)
    )
    """The network whose losses are compared, in `parity_steps` steps."""
    parity_steps: int = 200

    @property
    def on_gpu(self) -> bool:
        """Whether this is the benchmark itself."""
        return self.device == "cuda"

    @property
    def placement(self) -> Placement:
        """Where a training is measured."""
        return Placement(gpus=int(self.on_gpu), compile=self.on_gpu)


def packed(config: ModelConfig, first: int, count: int) -> Batch:
    """Samples of random tokens in documents of random lengths, by the sample numbers."""
    draw = np.random.default_rng([first, count])
    tokens = draw.integers(1, config.vocab_size, (count, config.context + 1)) ** 2
    tokens //= config.vocab_size  # small ids are likelier: something to learn
    tokens[draw.random(tokens.shape) < 1 / DOCUMENT] = 0
    return assemble(tokens, eod=0)


def seen(documents_BT: np.ndarray) -> float:
    """Keys that a token looks at, at the mean: those of its document up to itself."""
    begins = np.flatnonzero(np.diff(documents_BT, axis=1, prepend=-1).ravel())
    lengths = np.diff(begins, append=documents_BT.size)
    return float((lengths * (lengths + 1) / 2).sum() / documents_BT.size)


def timed(work: Callable[[], object], device: str, rounds: int = 10) -> float:
    """Seconds of a piece of work, the median over rounds, when the device is done with it."""
    for _ in range(3):
        work()
    times = []
    for _ in range(rounds):
        wait(device)
        started = time.perf_counter()
        work()
        wait(device)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def wait(device: "str | torch.device") -> None:
    """Until a device has done what it was given."""
    import torch

    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()
