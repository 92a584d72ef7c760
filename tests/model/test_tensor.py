"""Two processes that have a network together compute what one does with the whole."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from model.tensor_parallel import Split, Team
from tests.model.divided import SHAPES

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two processes measured: they are slow to start."""
    path = tmp_path_factory.mktemp("divided")
    command = [sys.executable, "-m", "tests.model.divided", str(path)]
    ranks = [subprocess.Popen([*command, str(rank)], cwd=ROOT) for rank in (0, 1)]
    assert [rank.wait(timeout=120) for rank in ranks] == [0, 0]
    return [json.loads((path / f"{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.parametrize("shape", SHAPES)
def test_states_and_gradients_are_those_of_the_whole(
    found: list[dict[str, Any]], shape: str
) -> None:
    for rank in found:
        assert rank[shape]["parameters"] == 0
        assert rank[shape]["states"] < 1e-5
        assert rank[shape]["gradients"] < 1e-5


def test_dropout_of_what_all_have_is_the_same(found: list[dict[str, Any]]) -> None:
    for rank in found:
        assert rank["dropout"]["states"] == 0
        assert rank["dropout"]["without"] > 0.1


def test_each_section_is_divided_and_joined_again() -> None:
    """Queries, keys and values lie one after another: a process has half of each."""
    whole = torch.arange(24).view(12, 2)
    split = Split(0, (8, 2, 2), (12, 2))
    parts = [split.part(whole, Team(rank=rank, size=2)) for rank in (0, 1)]
    assert parts[1][:, 0].tolist() == [8, 10, 12, 14, 18, 22]
    assert torch.equal(split.join(parts), whole)
