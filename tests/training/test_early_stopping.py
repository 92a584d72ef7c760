"""Early stopping: training ends when a loss on rows held apart no longer falls, with its best."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from cluster.placement import Placement
from tasks.training.early_stopping import EarlyStopping, Looks
from tasks.training.job import Program, TrainJob
from tasks.training.launch import launch, load_trained
from tasks.training.loop import Trainer
from tests.training import toy


def overfitting() -> Program:
    """What is learned of a few samples is wrong on others."""
    program, apart = toy.build(), toy.batch(100, 4)
    apart["targets"] = (apart["inputs"] * 3 + 2) % 13
    return Program(program.module, program.batch, [apart])


def job(folder: Path, **changes: Any) -> TrainJob:
    how = {"build": overfitting, "steps": 40, "stopping": EarlyStopping(every=2, patience=3)}
    return toy.job(folder, **(how | changes))


def rows(job: TrainJob) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (job.scratch / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("zero_stage", [0, 2, 3])
def test_it_ends_after_looks_without_a_lower_loss_with_its_best_weights(
    tmp_path: Path, zero_stage: int
) -> None:
    asked = job(tmp_path)
    weights = launch(asked, Placement(zero_stage=zero_stage))
    looks = Looks.of(asked.stopping, 40, rows(asked))
    assert looks.best is not None
    assert len(rows(asked)) == looks.best + 6 < 40
    assert looks.over
    program = overfitting()
    load_trained(program.module, weights)
    (apart,) = program.validation
    loss = program.module(**{k: torch.from_numpy(v) for k, v in apart.items()})
    assert loss.item() == pytest.approx(looks.found[looks.best], abs=1e-6)
    assert loss.item() == pytest.approx(min(looks.found.values()), abs=1e-6)


def test_without_patience_running_out_the_best_of_all_steps_is_kept(tmp_path: Path) -> None:
    asked = job(tmp_path, stopping=EarlyStopping(every=7, patience=9))
    launch(asked, Placement())
    looks = Looks.of(asked.stopping, 40, rows(asked))
    assert list(looks.found) == [7, 14, 21, 28, 35, 40]
    assert looks.best == 21
    weights = load_file(asked.scratch / "weights.safetensors")
    short = load_file(launch(job(tmp_path / "all", stopping=None), Placement()))
    assert not torch.equal(weights["model.hidden.weight"], short["model.hidden.weight"])


class Killed(BaseException):
    """As a kill would end it."""


@pytest.mark.parametrize("steps_behind", [1, 5])
def test_killed_behind_its_best_step_it_ends_with_the_same_bits(
    tmp_path: Path, steps_behind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best weights, which are no longer those in use, are in the checkpoint."""
    whole = job(tmp_path / "whole")
    expected = load_file(launch(whole, Placement()))
    best = Looks.of(whole.stopping, 40, rows(whole)).best
    assert best is not None

    def kill(trainer: Trainer, step: int, *rest: Any) -> Any:
        if step == best + steps_behind + 1:
            raise Killed
        return original(trainer, step, *rest)

    original, killed = Trainer.step, job(tmp_path / "killed", checkpoint_seconds=1e-6)
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(Trainer, "step", kill)
        launch(killed, Placement())
    found = load_file(launch(killed, Placement()))
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    assert [r["loss"] for r in rows(killed)] == [r["loss"] for r in rows(whole)]
