"""Trainings on a GPU: near those of a CPU in fp32, in every way that a placement asks for."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from cluster.placement import Placement
from tasks.training.job import METRICS, WEIGHTS
from tasks.training.launch import launch
from tasks.training.memory import device_bytes
from tasks.training.settings import PretrainSettings
from tests.training import on_gpu

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a process with a GPU left, and the same training on the CPU."""
    path = tmp_path_factory.mktemp("gpu")
    command = [sys.executable, "-m", "tests.training.on_gpu", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stderr[-3000:]
    launch(on_gpu.job(path / "cpu", "fp32"), Placement())
    return path


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / METRICS).read_text().splitlines()]


def losses(folder: Path) -> list[float]:
    return [row["loss"] for row in rows(folder)]


@pytest.mark.parametrize("name", on_gpu.PLACEMENTS)
def test_a_gpu_in_bf16_learns_what_a_cpu_in_fp32_learns(folder: Path, name: str) -> None:
    expected, found = losses(folder / "cpu"), losses(folder / name)
    assert expected[-1] < 0.6 * expected[0]
    assert found == pytest.approx(expected, rel=0.03)


def test_checkpoints_on_the_way_change_no_bit(folder: Path) -> None:
    assert losses(folder / "saved") == losses(folder / "plain")
    one, other = (load_file(folder / name / WEIGHTS) for name in ("saved", "plain"))
    assert all(torch.equal(one[name], tensor) for name, tensor in other.items())


def test_rows_tell_the_memory_of_the_device(folder: Path) -> None:
    assert all(row["memory_bytes"] > 1e6 for row in rows(folder / "plain"))


def test_the_plan_is_near_what_the_device_held(folder: Path) -> None:
    held = json.loads((folder / "held.json").read_text())["peak"]
    config = replace(on_gpu.CONFIG, depth=24)
    settings = PretrainSettings(
        context=config.context, batch_tokens=on_gpu.SAMPLES * config.context, precision="bf16"
    )
    planned = device_bytes(config, settings, Placement(gpus=1)).total
    assert 0.8 < planned / held < 1.4
