"""Figures of a classifier against values worked out by hand."""

import pytest

from tasks.tuning.classify.metrics import (
    accuracy,
    confusion,
    macro_f1,
    majority_accuracy,
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
