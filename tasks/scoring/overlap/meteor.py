"""METEOR with the stages exact and stem.

Source: Banerjee and Lavie, METEOR: an automatic metric for MT evaluation with improved correlation
with human judgments, 2005; parameters of Lavie and Agarwal, 2007 as commonly used (alpha 0.9,
beta 3, gamma 0.5). Words match greedily from the end of the text, as in NLTK, rather than by the
alignment with the fewest crossings; there is no synonym stage.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

from tasks.scoring.overlap.stemmer import SIGNATURE as STEMMER
from tasks.scoring.overlap.stemmer import stems

TOKEN = re.compile(r"\w+|[^\w\s]")
ALPHA, BETA, GAMMA = 0.9, 3.0, 0.5
SIGNATURE = f"meteor|stages:exact+stem|stem:{STEMMER}|alpha:{ALPHA}|beta:{BETA}|gamma:{GAMMA}"


def meteor(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
    """Per row the METEOR score, 0-1; of several references the one that scores best."""
    texts = [*predictions, *(text for row in references for text in row)]
    stem = stems(token for text in texts for token in tokens(text))
    return [
        max(meteor_tokens(tokens(prediction), tokens(reference), stem) for reference in row)
        for prediction, row in zip(predictions, references, strict=True)
    ]


def tokens(text: str) -> list[str]:
    """Lower-case words and single punctuation marks."""
    return TOKEN.findall(text.lower())


def meteor_tokens(prediction: list[str], reference: list[str], stem: dict[str, str]) -> float:
    """The score of one tokenized pair, 0-1."""
    matches = _align(prediction, reference, stem)
    if not matches:
        return 0.0
    precision, recall = len(matches) / len(prediction), len(matches) / len(reference)
    mean = precision * recall / (ALPHA * precision + (1 - ALPHA) * recall)
    penalty = GAMMA * (_chunks(matches) / len(matches)) ** BETA
    return (1 - penalty) * mean


def _align(
    prediction: list[str], reference: list[str], stem: dict[str, str]
) -> list[tuple[int, int]]:
    """Pairs of matched places, in the order of the prediction."""
    matches: dict[int, int] = {}
    for form in ({}, stem):
        free: dict[str, list[int]] = {}
        for j, token in enumerate(reference):
            if j not in matches.values():
                free.setdefault(form.get(token, token), []).append(j)
        for i in reversed(range(len(prediction))):
            places = free.get(form.get(prediction[i], prediction[i]))
            if i not in matches and places:
                matches[i] = places.pop()
    return sorted(matches.items())


def _chunks(matches: list[tuple[int, int]]) -> int:
    """Runs of matches that are consecutive in both texts."""
    return 1 + sum((i + 1, j + 1) != after for (i, j), after in pairwise(matches))
