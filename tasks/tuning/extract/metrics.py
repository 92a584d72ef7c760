"""Exact match and F1 of answers, as SQuAD's published evaluation has them (Rajpurkar et al. 2016,
2018): without case, punctuation and articles, against the nearest of the right answers.
"""

import re
from collections import Counter
from collections.abc import Sequence

from tasks.evaluation.overlap.tokens import squad_form

SENTENCE = re.compile(r"[^.!?]+[.!?]*")


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """1 where the prediction is an answer; with no answer, where it is empty."""
    return float(any(squad_form(prediction) == squad_form(answer) for answer in answers or [""]))


def word_f1(prediction: str, answers: Sequence[str]) -> float:
    """The best F1 of the prediction's words and an answer's; with no answer, 1 if it is empty."""
    told = squad_form(prediction).split()
    return max(_f1(told, squad_form(answer).split()) for answer in answers or [""])


def _f1(told: Sequence[str], right: Sequence[str]) -> float:
    if not told or not right:
        return float(told == right)
    both = (Counter(told) & Counter(right)).total()
    return 2 * both / (len(told) + len(right))


def nearest_sentence(question: str, context: str) -> str:
    """The sentence of a text that shares most words with a question."""
    asked = set(squad_form(question).split())
    sentences = SENTENCE.findall(context) or [context]
    return max(sentences, key=lambda one: len(asked & set(squad_form(one).split()))).strip()
