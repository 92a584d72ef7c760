"""Every optimizer: PyTorch's update, in every ZeRO stage that can hold it, through a kill."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from cluster.errors import BadInput
from cluster.placement import Placement
from tasks.training.launch import launch
from tasks.training.optimizers import make_optimizer
from tasks.training.settings import UNSHARDED, OptimizerName, OptimizerSettings
from tests.training import toy
from tests.training.test_loop import losses, rows

EVERY: list[OptimizerName] = ["sgd", "momentum", "adagrad", "rmsprop", "adam", "adamw", "muon"]
SHARDED = [name for name in EVERY if name not in UNSHARDED]
SLOW = [pytest.param(n, 3, marks=pytest.mark.slow) for n in SHARDED if n != "adamw"]


def settings(name: OptimizerName) -> OptimizerSettings:
    return OptimizerSettings(name=name, learning_rate=0.02, momentum=0.9, epsilon=1e-6)


def first_update(name: OptimizerName, weight: float, gradients: list[float]) -> float:
    """How far a scalar without decay moves at its last step, at a learning rate of 0.02."""
    parameter = nn.Parameter(torch.tensor([weight], dtype=torch.float64))
    group = {"name": "vectors", "params": [parameter], "lr": 0.02, "weight_decay": 0.0}
    optimizer = make_optimizer([group], settings(name))
    for gradient in gradients:
        before = parameter.item()
        parameter.grad = torch.tensor([gradient], dtype=torch.float64)
        optimizer.step()
    return before - parameter.item()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sgd", 0.02 * 1),
        ("momentum", 0.02 * (0.9 * 2 + 1)),
        ("adagrad", 0.02 * 1 / 5**0.5),
        ("rmsprop", 0.02 * 1 / (0.02 * 0.98 * 4 + 0.02 * 1) ** 0.5),
        ("adam", 0.02 * (0.28 / 0.19) / ((0.02 * 0.98 * 4 + 0.02 * 1) / (1 - 0.98**2)) ** 0.5),
    ],
)
def test_the_second_update_is_the_papers(name: OptimizerName, expected: float) -> None:
    assert first_update(name, 0.5, [2.0, 1.0]) == pytest.approx(expected, rel=1e-4)


def test_muon_turns_a_matrix_by_an_orthogonal_step_and_leaves_the_rest_to_adamw() -> None:
    torch.manual_seed(0)
    matrix, vector = nn.Parameter(torch.zeros(8, 16)), nn.Parameter(torch.zeros(5))
    groups = [{"params": [matrix, vector], "lr": 0.02, "weight_decay": 0.0}]
    optimizer = make_optimizer(groups, settings("muon"))
    matrix.grad, vector.grad = torch.randn(8, 16), torch.randn(5)
    optimizer.step()
    singular = torch.linalg.svdvals(matrix / (0.02 * 0.2 * 16**0.5))
    assert singular.min() > 0.6 and singular.max() < 1.3
    torch.testing.assert_close(vector.detach(), -0.02 * vector.grad.sign(), rtol=1e-4, atol=0)
    assert {key for state in optimizer.state.values() for key in state} == {
        "momentum_buffer",
        "exp_avg",
        "exp_avg_sq",
        "step",
    }


# ZeRO 3 of one optimizer, as it costs most.
ALIKE = [(name, stage) for name in SHARDED for stage in (1, 2)] + [("adamw", 3)]


@pytest.mark.parametrize(("name", "zero_stage"), [*ALIKE, *SLOW])
def test_zero_stages_train_alike(tmp_path: Path, name: OptimizerName, zero_stage: int) -> None:
    plain, sharded = (toy.job(tmp_path / n, optimizer=settings(name)) for n in ("a", "b"))
    assert losses(sharded, zero_stage=zero_stage) == pytest.approx(losses(plain), rel=1e-5)


RESUMED = [(name, stage) for name in EVERY for stage in (0, 2)] + [("adamw", 3)]


@pytest.mark.parametrize(("name", "zero_stage"), [*RESUMED, ("adagrad", 3), ("muon", 3), *SLOW])
def test_a_stopped_training_ends_with_the_same_losses(
    tmp_path: Path, name: OptimizerName, zero_stage: int
) -> None:
    if zero_stage and name in UNSHARDED:
        with pytest.raises(BadInput, match=f"name is {name}, which DeepSpeed cannot shard"):
            launch(toy.job(tmp_path, optimizer=settings(name)), Placement(zero_stage=zero_stage))
        return
    whole = toy.job(tmp_path / "whole", optimizer=settings(name))
    expected = losses(whole, zero_stage=zero_stage)
    job = toy.job(
        tmp_path / "cut",
        optimizer=settings(name),
        checkpoint_seconds=1e-9,
        build=partial(toy.build, break_at=8),
    )
    with pytest.raises(RuntimeError, match="broken"):
        launch(job, Placement(zero_stage=zero_stage))
    assert len(rows(job)) < 12
    again = toy.job(tmp_path / "cut", optimizer=settings(name), checkpoint_seconds=1e-9)
    assert losses(again, zero_stage=zero_stage) == expected
