"""Exact match and F1 of answers, as SQuAD's published evaluation has them (Rajpurkar et al. 2016,
2018): without case, punctuation and articles, against the nearest of the right answers.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)
SENTENCE = re.compile(r"[^.!?]+[.!?]*")


def normal(text: str) -> str:
    """What is compared."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """1 where the prediction is an answer; with no answer, where it is empty."""
    return float(any(normal(prediction) == normal(answer) for answer in answers or [""]))


def word_f1(prediction: str, answers: Sequence[str]) -> float:
    """The best F1 of the prediction's words and an answer's; with no answer, 1 if it is empty."""
    told = normal(prediction).split()
    return max(_f1(told, normal(answer).split()) for answer in answers or [""])


def _f1(told: Sequence[str], right: Sequence[str]) -> float:
    if not told or not right:
        return float(told == right)
    both = (Counter(told) & Counter(right)).total()
    return 2 * both / (len(told) + len(right))


def nearest_sentence(question: str, context: str) -> str:
    """The sentence of a text that shares most words with a question."""
    asked = set(normal(question).split())
    sentences = SENTENCE.findall(context) or [context]
    return max(sentences, key=lambda one: len(asked & set(normal(one).split()))).strip()
