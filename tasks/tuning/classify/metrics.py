"""Figures of a classifier: accuracy with its interval, the majority class, macro F1, confusion."""

import math
from collections import Counter
from collections.abc import Sequence


def accuracy(gold: Sequence[int], predicted: Sequence[int]) -> float:
    """Share of rows predicted right."""
    return sum(g == p for g, p in zip(gold, predicted, strict=True)) / len(gold)


def majority_accuracy(gold: Sequence[int]) -> float:
    """Share of the most frequent class: the best that any constant answer could do."""
    return max(Counter(gold).values()) / len(gold)


def macro_f1(gold: Sequence[int], predicted: Sequence[int]) -> float:
    """Mean F1 over the classes that occur in either; a class never predicted right has 0."""
    right = Counter(g for g, p in zip(gold, predicted, strict=True) if g == p)
    of_gold, of_predicted = Counter(gold), Counter(predicted)
    classes = sorted(set(gold) | set(predicted))
    return sum(2 * right[c] / (of_gold[c] + of_predicted[c]) for c in classes) / len(classes)


def wilson_interval(right: int, rows: int) -> tuple[float, float]:
    """The 95 % interval of a share, from counts (Wilson 1927)."""
    z = 1.96
    share, weight = right / rows, z * z / rows
    middle = (share + weight / 2) / (1 + weight)
    half = z * math.sqrt(share * (1 - share) / rows + weight / (4 * rows)) / (1 + weight)
    return max(0.0, middle - half), min(1.0, middle + half)


def confusion(gold: Sequence[int], predicted: Sequence[int], classes: int) -> list[list[int]]:
    """Counts by gold class (rows) and predicted class (columns)."""
    counts = Counter(zip(gold, predicted, strict=True))
    return [[counts[g, p] for p in range(classes)] for g in range(classes)]
