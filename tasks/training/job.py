"""What to train: the job that a stage describes and the loop carries out.

Light to import, so that stages may build jobs without PyTorch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.errors import BadInput, StageFailed
from cluster.home import subfolder
from cluster.tracking import Tracker
from tasks.tokens.steps import Steps
from tasks.training.early_stopping import EarlyStopping
from tasks.training.exams import Exams
from tasks.training.settings import OptimizerSettings, Precision

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

CHECKPOINTS = "checkpoints"
METRICS = "metrics.jsonl"
WEIGHTS = "weights.safetensors"
Batch = dict[str, "np.ndarray"]
Progress = Callable[..., None]


class Diverged(StageFailed):
    """The loss or its gradient is no longer finite."""


class Preempted(RuntimeError):
    """The process was asked to end (SIGTERM) and has left a checkpoint."""


@dataclass(frozen=True)
class Program:
    """What is trained on what.

    `module(**tensors)` is network and objective: it returns the mean loss of a batch. `batch(first,
    count)` gives samples `first` to `first + count`, counted from the start of training, as arrays
    `[count, ...]`. `validation` are batches of rows held apart, for early stopping.
    """

    module: "nn.Module"
    batch: Callable[[int, int], Batch]
    validation: Sequence[Batch] = ()


@dataclass(frozen=True)
class TrainJob:
    """One training: what `train` needs to know beyond where it runs.

    `build` is called on every rank, so it must pickle: a `functools.partial` of a function of a
    module. `batch_samples` are of all ranks together, fewer in the first steps where there is a
    `ramp` (`tasks.tokens.steps`); at most `micro_samples` of one rank at a time. `data` is a hash
    of what batches are made of: a checkpoint goes on with the same bytes only. Up to `most_skipped`
    batches with an outrageous loss are skipped (`tasks.training.spikes`); with 0, only a loss that
    is not finite ends the training. `flops_per_token`, forward and backward, are for telling the
    speed. `layer_decay` is each layer's rate over that of the one above it. With `stopping` it may
    end earlier, and ends with its best weights. `exams` are sat on the way. `keep_state` leaves a
    checkpoint of the last step too, for another training to go on from; those of `kept_steps` stay,
    whichever is the newest.
    """

    build: Callable[[], Program]
    steps: int
    batch_samples: int
    scratch: Path
    ramp: tuple[tuple[int, int], ...] = ()
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    micro_samples: int | None = None
    layer_decay: float = 1.0
    stopping: EarlyStopping | None = None
    exams: Exams | None = None
    precision: Precision = "fp32"
    seed: int = 0
    data: str = ""
    checkpoint_seconds: float = 20.0
    most_skipped: int = 0
    flops_per_token: float = 0.0
    keep_state: bool = False
    kept_steps: frozenset[int] = frozenset()
    tracker: Tracker | None = None
    on_progress: Progress | None = None

    @property
    def trace(self) -> Path:
        """Where a trace of some steps goes, if there is to be one."""
        return subfolder("traces") / f"{self.scratch.name}.json.gz"

    @property
    def batches(self) -> Steps:
        """Which samples each step takes."""
        return Steps(self.steps, self.batch_samples, self.ramp)

    def identity(self, shapes: Mapping[str, list[int]]) -> dict[str, Any]:
        """What must not change between a checkpoint and its continuation; `shapes` are those of the
        state's tensors.
        """
        return {
            "steps": self.steps,
            "batch_samples": self.batch_samples,
            **({"layer_decay": self.layer_decay} if self.layer_decay < 1 else {}),
            **({"stopping": asdict(self.stopping)} if self.stopping else {}),
            **({"batch_ramp": [list(stage) for stage in self.ramp]} if self.ramp else {}),
            "precision": self.precision,
            "seed": self.seed,
            "data": self.data,
            **self.optimizer.model_dump(mode="json"),
            **{f"shape of {name}": shape for name, shape in shapes.items()},
        }

    def check_shares(self, workers: int) -> None:
        """Raise BadInput when these workers cannot share a batch of every size evenly."""
        for samples in self.batches.sizes:
            self.share(workers, samples)

    def share(self, workers: int, samples: int) -> tuple[int, int]:
        """Samples of one micro-batch, and micro-batches a step, for each of some workers that have
        a batch of so many samples together: the most that divide its share and are not too many.

        Raises BadInput when the batch cannot be divided evenly.
        """
        if samples % workers:
            below = max(workers, samples // workers * workers)
            raise BadInput(
                f"a batch of {samples} samples cannot be shared by {workers} workers; "
                f"use {below} or {below + workers} samples, or another placement.workers"
            )
        local = samples // workers
        most = min(self.micro_samples or local, local)
        micro = next(n for n in range(most, 0, -1) if local % n == 0)
        return micro, local // micro
