"""Figures of a classifier against values worked out by hand."""

import pytest

from tasks.tuning.classify.metrics import (
    accuracy,
    confusion,
    macro_f1,
    majority_accuracy,
    wilson_interval,
)

GOLD = [0, 0, 0, 1, 1, 2]
PREDICTED = [0, 0, 1, 1, 0, 0]


def test_accuracy_and_majority() -> None:
    assert accuracy(GOLD, PREDICTED) == 0.5
    assert majority_accuracy(GOLD) == 0.5


def test_macro_f1() -> None:
    # class 0: precision 2/4, recall 2/3; class 1: 1/2 and 1/2; class 2 is never predicted
    assert macro_f1(GOLD, PREDICTED) == pytest.approx((4 / 7 + 1 / 2 + 0) / 3)


def test_macro_f1_leaves_out_a_class_that_occurs_nowhere() -> None:
    assert macro_f1([0, 2], [0, 2]) == 1.0


def test_confusion() -> None:
    assert confusion(GOLD, PREDICTED, 3) == [[2, 1, 0], [1, 1, 0], [1, 0, 0]]


@pytest.mark.parametrize(
    ("right", "rows", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (0, 20, 0.0, 0.1611), (20, 20, 0.8389, 1.0)],
)
def test_wilson_interval(right: int, rows: int, low: float, high: float) -> None:
    # Newcombe 1998, table I: score method without continuity correction
    assert wilson_interval(right, rows) == pytest.approx((low, high), abs=1e-4)
