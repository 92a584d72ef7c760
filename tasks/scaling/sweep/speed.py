"""How long a step of a planned run takes on this machine: by the training loop itself, briefly.

Measured once a shape and placement and remembered in `$HEADRACE_HOME/speeds.json`; delete it to
measure again.
"""

import json
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cluster.files import write_atomically
from cluster.home import home
from cluster.placement import Placement
from tasks.scaling.sweep.plan import MemberSettings
from tasks.training.job import METRICS, Program, TrainJob
from tasks.training.telemetry import read_rows

if TYPE_CHECKING:
    from model.config import ModelConfig

STEPS, WARM = 24, 8


class Speed(NamedTuple):
    """Seconds of one step, and of setting a training up and ending it."""

    step: float
    setup: float


def speed_of(member: MemberSettings, vocab_size: int, placement: Placement) -> Speed:
    """The speed of a member's training, from memory or by a few steps on random tokens."""
    path = home() / "speeds.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    key = _key(member, vocab_size, placement)
    if key not in known:
        known[key] = _measure(member, vocab_size, placement)
        write_atomically(path, json.dumps(known, indent=1))
    return Speed(*known[key])


def _key(member: MemberSettings, vocab_size: int, placement: Placement) -> str:
    model, training = member.model, member.training
    shape = f"d{model.width} x{model.depth} h{model.heads} v{vocab_size} t{training.context}"
    where = f"gpu{placement.gpus} threads{placement.cpu_threads} workers{placement.workers}"
    if placement.micro_batch_tokens:
        where += f" micro{placement.micro_batch_tokens}"
    return f"{shape} b{training.batch_tokens} {training.precision} {where}"


def _measure(member: MemberSettings, vocab_size: int, placement: Placement) -> Speed:
    from tasks.training.loop import train

    training = member.training
    alone = placement.model_copy(
        update={"workers": 1, "context_parallel": 1, "tensor_parallel": 1, "profile_steps": 0}
    )
    with tempfile.TemporaryDirectory() as folder:
        config = member.model.config(vocab_size, training.context)
        job = TrainJob(
            build=partial(_program, config),
            steps=STEPS,
            batch_samples=training.batch_samples,
            micro_samples=alone.micro_samples(training.context),
            optimizer=training.optimizer,
            precision=training.precision,
            scratch=Path(folder),
            checkpoint_seconds=3600,
        )
        began = time.monotonic()
        train(job, alone)
        whole = time.monotonic() - began
        seconds = [row["seconds"] for row in read_rows(Path(folder) / METRICS)]
    step = float(np.median(seconds[WARM:]))
    return Speed(round(step, 6), round(max(0.0, whole - sum(seconds)), 3))


def _program(config: "ModelConfig") -> Program:
    """The network and random tokens."""
    from model.encoder_decoder import build
    from model.objectives.modules import with_objective

    objective = with_objective(build(config), "causal")
    random = np.random.default_rng(0)

    def batch(first: int, count: int) -> dict[str, np.ndarray]:
        ids = random.integers(0, config.vocab_size, (count, config.context + 1))
        documents = np.ones((count, config.context), np.int64)
        positions = np.tile(np.arange(config.context), (count, 1))
        return {
            "inputs": ids[:, :-1],
            "targets": ids[:, 1:],
            "documents": documents,
            "positions": positions,
        }

    return Program(objective, batch)
