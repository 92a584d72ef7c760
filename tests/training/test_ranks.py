"""Two ranks train what one does, and meet what befalls one of them together."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from cluster.placement import Placement
from tasks.training.job import CHECKPOINTS, METRICS, WEIGHTS
from tasks.training.launch import launch
from tests.training.two_ranks import (
    STEPS,
    divided_job,
    experts_job,
    half_job,
    network_job,
    shared_job,
    uneven_job,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes left that trained all jobs after one another: they are slow to start."""
    path = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, "-m", "tests.training.two_ranks", str(path)]
    subprocess.run(command, cwd=ROOT, timeout=600, check=True)
    launch(network_job(path / "alone"), Placement())
    for stage in (1, 2):
        launch(network_job(path / f"alone-{stage}"), Placement(zero_stage=stage))
    launch(uneven_job(path / "uneven-alone"), Placement())
    launch(shared_job(path / "unshared"), Placement())
    launch(divided_job(path / "undivided"), Placement())
    launch(divided_job(path / "left"), Placement())
    launch(experts_job(path / "experts"), Placement())
    for stage in (2, 3):
        launch(half_job(path / f"half-alone-{stage}"), Placement(zero_stage=stage))
    return path


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / METRICS).read_text().splitlines()]


def losses(folder: Path) -> list[float]:
    return [row["loss"] for row in rows(folder)]


@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
def test_two_ranks_have_the_losses_of_one(folder: Path, zero_stage: int) -> None:
    alone, shared = losses(folder / "alone"), losses(folder / f"zero-{zero_stage}")
    assert len(shared) == STEPS
    assert shared == pytest.approx(alone, rel=1e-5)
    assert alone[-1] < 0.8 * alone[0]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_training_that_is_not_compiled_loads_no_compiler(folder: Path, rank: int) -> None:
    """Two CPU seconds in every process; ZeRO 3 of DeepSpeed needs it."""
    assert (folder / f"compiler-{rank}.txt").read_text() == "False"


@pytest.mark.parametrize("zero_stage", [1, 2])
def test_the_norm_of_two_ranks_is_that_of_one_to_the_bit(folder: Path, zero_stage: int) -> None:
    """A run that goes on with more or fewer workers would drift apart from the last bit on."""
    assert losses(folder / f"zero-{zero_stage}") == losses(folder / f"alone-{zero_stage}")


@pytest.mark.parametrize("zero_stage", [2, 3])
def test_two_ranks_with_bf16_weights_have_the_losses_of_one(folder: Path, zero_stage: int) -> None:
    """To the rounding of bf16; the weights that they end with are the fp32 copies."""
    alone, shared = (folder / f"half-{name}{zero_stage}" for name in ("alone-", ""))
    assert losses(shared) == pytest.approx(losses(alone), rel=1e-2)
    assert losses(shared) == pytest.approx(losses(folder / "undivided"), rel=2e-2)
    for name, weight in load_file(shared / WEIGHTS).items():
        assert weight.dtype == torch.float32
        assert not torch.equal(weight, weight.bfloat16().float()), name


@pytest.mark.parametrize("zero_stage", [0, 3])
def test_two_ranks_that_share_each_row_have_the_losses_of_one(
    folder: Path, zero_stage: int
) -> None:
    alone, shared = losses(folder / "unshared"), losses(folder / f"shared-{zero_stage}")
    assert shared == pytest.approx(alone, rel=1e-5)
    assert alone[-1] < 0.8 * alone[0]
    tokens = [rows(folder / name)[-1]["tokens"] for name in ("unshared", f"shared-{zero_stage}")]
    assert tokens == [STEPS * 8 * 8] * 2


@pytest.mark.parametrize("how", ["0", "1", "2", "compiled", "experts"])
def test_two_ranks_that_have_a_network_together_train_it_as_one(folder: Path, how: str) -> None:
    """Losses and gradient norms, of which most are clipped, and in the end the whole weights."""
    undivided = "experts" if how == "experts" else "undivided"
    alone, together = rows(folder / undivided), rows(folder / f"divided-{how}")
    for key in ("loss", "grad_norm", "tokens"):
        told = [row[key] for row in together]
        assert told == pytest.approx([row[key] for row in alone], rel=1e-5)
    assert sum(row["grad_norm"] > 1 for row in alone) > STEPS / 3
    assert alone[-1]["loss"] < 0.8 * alone[0]["loss"]
    whole, joined = (load_file(folder / name / WEIGHTS) for name in (undivided, f"divided-{how}"))
    assert whole.keys() == joined.keys()
    for name, weight in whole.items():
        torch.testing.assert_close(joined[name], weight, rtol=0, atol=1e-5)


@pytest.mark.parametrize("zero_stage", [0, 2])
def test_a_network_of_two_ranks_goes_on_from_a_checkpoint_with_the_same_bits(
    folder: Path, zero_stage: int
) -> None:
    through, stopped = folder / f"through-{zero_stage}", folder / f"stopped-{zero_stage}"
    assert losses(stopped) == losses(through)
    assert (stopped / WEIGHTS).read_bytes() == (through / WEIGHTS).read_bytes()


@pytest.mark.parametrize("name", ["apart", "joined", "left"])
def test_a_network_can_be_divided_otherwise_when_a_training_goes_on(
    folder: Path, name: str
) -> None:
    assert losses(folder / name) == pytest.approx(losses(folder / "undivided"), rel=1e-5)


@pytest.mark.parametrize("name", ["sitting-0-1", "sitting-0-2", "sitting-3-1"])
def test_each_rank_puts_its_exams_to_the_whole_network(folder: Path, name: str) -> None:
    """The last scores are of the weights that training ends with; no other step has any."""
    told, weights = rows(folder / name), load_file(folder / name / WEIGHTS)
    assert [row["step"] for row in told if "exams" in row] == [2, 12]
    for layer, found in told[-1]["exams"].items():
        inside = (w for n, w in weights.items() if n.startswith(f"model.network.blocks.{layer}."))
        total = float(sum(w.double().sum() for w in inside))
        assert found["results"]["sum"]["value"] == pytest.approx(total, abs=1e-9)
    assert list(told[-1]["exams"]) == ["0", "1"]


def test_an_exam_that_breaks_on_one_rank_ends_both(folder: Path) -> None:
    told = [(folder / f"unseated-{rank}.txt").read_text() for rank in (0, 1)]
    assert all("the second exam is broken" in one for one in told)


def test_ranks_with_more_targets_count_for_more(folder: Path) -> None:
    assert losses(folder / "uneven") == pytest.approx(losses(folder / "uneven-alone"), rel=1e-5)


def test_nan_on_one_rank_stops_both_before_the_step(folder: Path) -> None:
    told = [(folder / f"nan-{rank}.txt").read_text() for rank in (0, 1)]
    assert told[0] == told[1]
    assert told[0].startswith("Diverged: step 7 of 12: loss nan, gradient norm nan, on samples 48")
    assert len(losses(folder / "nan")) == 6


def test_a_flipped_bit_is_found_before_it_is_saved(folder: Path) -> None:
    """The newest checkpoint is of the step before: going on from it heals the training."""
    told = [(folder / f"flip-{rank}.txt").read_text() for rank in (0, 1)]
    assert told[0] == told[1]
    assert told[0].startswith("WeightsDiffer: after step 7 the weights of the ranks differ: ")
    newest = max(path.name for path in (folder / "flip" / CHECKPOINTS).glob("step-*"))
    assert newest == "step-00000006"


def test_a_flipped_bit_of_what_ranks_with_one_network_both_have_is_found(folder: Path) -> None:
    told = [(folder / f"parted-{rank}.txt").read_text() for rank in (0, 1)]
    assert told[0] == told[1]
    assert told[0].startswith("WeightsDiffer: after step 7 the weights of the ranks differ: ")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("torn", ["BadInput: block 7 is torn"] * 2),
        ("lost", [f"RuntimeError: {OSError('no such device')!r}", "OSError: no such device"]),
    ],
)
def test_a_batch_that_one_rank_cannot_fetch_stops_both_with_the_reason(
    folder: Path, name: str, told: list[str]
) -> None:
    assert [(folder / f"{name}-{rank}.txt").read_text() for rank in (0, 1)] == told
    assert len(losses(folder / name)) == 4
