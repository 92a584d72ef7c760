"""Minimum Bayes risk decoding (Kumar and Byrne 2004; Eikema and Aziz 2020, section 2.3)."""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

Candidate = TypeVar("Candidate", bound=Hashable)


def minimum_bayes_risk(
    candidates: Sequence[Candidate], utility: Callable[[Candidate, Candidate], float]
) -> int:
    """The candidate with the largest mean `utility(candidate, reference)`; the first of equals.

    The other candidates are its references. Drawn from the model, they stand for what the answer
    could be, each as often as it is probable; so its mean utility estimates the expected one.
    """
    counts = Counter(candidates)

    def gain(candidate: Candidate) -> float:
        others = counts - Counter([candidate])
        return sum(count * utility(candidate, other) for other, count in others.items())

    gains = {candidate: gain(candidate) for candidate in counts}
    return max(range(len(candidates)), key=lambda i: gains[candidates[i]])
