"""METEOR with the stages exact and stem, and synonyms where WordNet is installed and asked for.

Source: Banerjee and Lavie, METEOR: an automatic metric for MT evaluation with improved correlation
with human judgments, 2005; parameters of Lavie and Agarwal, 2007 as commonly used (alpha 0.9,
beta 3, gamma 0.5). As in NLTK, words match greedily from the end of the text rather than by the
alignment with the fewest crossings, and synonyms are looked up of stems.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

from tasks.evaluation.overlap.stemmer import SIGNATURE as STEMMER
from tasks.evaluation.overlap.stemmer import stem
from tasks.evaluation.overlap.wordnet import synonyms as synonyms_of

TOKEN = re.compile(r"\w+|[^\w\s]")
ALPHA, BETA, GAMMA = 0.9, 3.0, 0.5


def meteor(
    predictions: Sequence[str], references: Sequence[Sequence[str]], synonyms: bool = False
) -> list[float]:
    """Per row the METEOR score, 0-1; of several references the one that scores best.

    Raises BadInput where `synonyms` are asked for and WordNet is not installed.
    """
    return [
        max(meteor_tokens(tokens(prediction), tokens(text), synonyms) for text in row)
        for prediction, row in zip(predictions, references, strict=True)
    ]


def signature(synonyms: bool = False) -> str:
    """All that the value depends on besides the texts."""
    stages = "exact+stem+wordnet" if synonyms else "exact+stem"
    parts = f"meteor|stages:{stages}|stem:{STEMMER}|alpha:{ALPHA}|beta:{BETA}|gamma:{GAMMA}"
    return f"{parts}|headrace:2"


def tokens(text: str) -> list[str]:
    """Lower-case words and single punctuation marks."""
    return TOKEN.findall(text.lower())


def meteor_tokens(prediction: list[str], reference: list[str], synonyms: bool = False) -> float:
    """The score of one tokenized pair, 0-1."""
    matches = _align(prediction, reference, synonyms)
    if not matches:
        return 0.0
    precision, recall = len(matches) / len(prediction), len(matches) / len(reference)
    mean = precision * recall / (ALPHA * precision + (1 - ALPHA) * recall)
    penalty = GAMMA * (_chunks(matches) / len(matches)) ** BETA
    return (1 - penalty) * mean


def _align(prediction: list[str], reference: list[str], synonyms: bool) -> list[tuple[int, int]]:
    """Pairs of matched places, in the order of the prediction."""
    matches: dict[int, int] = {}
    _match(matches, prediction, reference)
    stems = [stem(word) for word in prediction], [stem(word) for word in reference]
    _match(matches, *stems)
    if synonyms:
        _match_synonyms(matches, *stems)
    return sorted(matches.items())


def _match(matches: dict[int, int], prediction: list[str], reference: list[str]) -> None:
    """Match what is equal and not matched yet, from the end."""
    free: dict[str, list[int]] = {}
    for j in sorted(set(range(len(reference))) - set(matches.values())):
        free.setdefault(reference[j], []).append(j)
    for i in reversed(range(len(prediction))):
        if i not in matches and free.get(prediction[i]):
            matches[i] = free[prediction[i]].pop()


def _match_synonyms(matches: dict[int, int], prediction: list[str], reference: list[str]) -> None:
    """Match each word left with the last word left that shares a meaning with it."""
    free = sorted(set(range(len(reference))) - set(matches.values()))
    for i in reversed(range(len(prediction))):
        if i in matches:
            continue
        meant = synonyms_of(prediction[i])
        j = next((j for j in reversed(free) if reference[j] in meant), None)
        if j is not None:
            matches[i] = j
            free.remove(j)


def _chunks(matches: list[tuple[int, int]]) -> int:
    """Runs of matches that are consecutive in both texts."""
    return 1 + sum((i + 1, j + 1) != after for (i, j), after in pairwise(matches))
