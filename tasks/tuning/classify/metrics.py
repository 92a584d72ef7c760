"""Figures of a classifier: accuracy, the majority class, F1, confusion."""

from collections import Counter
from collections.abc import Sequence

import numpy as np


def accuracy(gold: Sequence[int], predicted: Sequence[int]) -> float:
    """Share of rows predicted right."""
    return sum(g == p for g, p in zip(gold, predicted, strict=True)) / len(gold)


def majority_accuracy(gold: Sequence[int]) -> float:
    """Share of the most frequent class: the best that any constant answer could do."""
    return max(Counter(gold).values()) / len(gold)


def f1_by_class(gold: Sequence[int], predicted: Sequence[int], classes: int) -> list[float]:
    """F1 of every class; one never predicted right, or that occurs in neither, has 0."""
    right = Counter(g for g, p in zip(gold, predicted, strict=True) if g == p)
    both = Counter(gold) + Counter(predicted)
    return [2 * right[c] / both[c] if both[c] else 0.0 for c in range(classes)]


def macro_f1(gold: Sequence[int], predicted: Sequence[int]) -> float:
    """Mean F1 over the classes that occur in either."""
    occurring = sorted(set(gold) | set(predicted))
    each = f1_by_class(gold, predicted, max(occurring) + 1)
    return sum(each[c] for c in occurring) / len(occurring)


def f1_of_sets(gold_RC: np.ndarray, predicted_RC: np.ndarray) -> float:
    """Micro F1: of all that holds and all that was predicted, 0 where neither is anything."""
    both = int(gold_RC.sum() + predicted_RC.sum())
    return float(2 * (gold_RC & predicted_RC).sum() / both) if both else 0.0


def f1_by_column(gold_RC: np.ndarray, predicted_RC: np.ndarray) -> list[float]:
    """F1 of each of several classes."""
    return [f1_of_sets(g, p) for g, p in zip(gold_RC.T, predicted_RC.T, strict=True)]


def confusion(gold: Sequence[int], predicted: Sequence[int], classes: int) -> list[list[int]]:
    """Counts by gold class (rows) and predicted class (columns)."""
    counts = Counter(zip(gold, predicted, strict=True))
    return [[counts[g, p] for p in range(classes)] for g in range(classes)]
