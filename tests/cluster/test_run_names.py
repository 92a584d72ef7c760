"""A run is found by its id, the beginning of it, or its recipe's name."""

from pathlib import Path

import pytest

from cluster.errors import BadInput
from cluster.run_names import find_run
from cluster.runs import RunRecord


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, day in (("mill", 1), ("mill", 3), ("mill", 2), ("weir", 4)):
        record = RunRecord.start({"name": name}, "data")
        about = {"id": f"{name}-2026010{day}-a{day}", "started": f"2026-01-0{day}T00:00:00+00:00"}
        record.model_copy(update=about).save(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mill-20260101-a1", "mill-20260101-a1"),
        ("mill", "mill-20260103-a3"),
        ("mill-20260102", "mill-20260102-a2"),
        ("we", "weir-20260104-a4"),
    ],
)
def test_an_id_a_recipe_and_the_beginning_of_an_id(root: Path, name: str, expected: str) -> None:
    assert find_run(root, name).id == expected


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mil", "3 runs begin with 'mil': mill-20260101-a1, mill-20260102-a2, mill-20260103-a3"),
        ("mull", "no run 'mull': did you mean 'mill'"),
        ("", "4 runs begin with ''"),
    ],
)
def test_what_is_not_one_run_is_refused(root: Path, name: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        find_run(root, name)


def test_before_the_first_run_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no run was recorded"):
        find_run(tmp_path, "mill")
