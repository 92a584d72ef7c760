"""Many texts as one array of word codes, with where each text and each of its sentences begins.

Words are lower-case runs of letters and digits, of any script or of ASCII's alone; a text's
sentences are its lines.
"""

import re
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tasks.evaluation.overlap.stemmer import stem

Script = Literal["unicode", "ascii"]
WORDS = {
    "unicode": re.compile(r"[^\W_]+|[\n\0]"),
    "ascii": re.compile(r"[a-z0-9]+|[\n\0]"),
}
LINE, TEXT = -1, -2
ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True)
class Texts:
    """`codes` of all words; text i is `codes[texts[i]:texts[i + 1]]`, its sentences begin at
    `sentences[lines[i]:lines[i + 1]]`; `vocabulary` bounds the codes.
    """

    codes: np.ndarray
    texts: np.ndarray
    sentences: np.ndarray
    lines: np.ndarray
    vocabulary: int


def encode(
    texts: Sequence[str],
    form: Callable[[str], str] | None = None,
    script: Script = "unicode",
) -> Texts:
    """Code the words of `texts`; words of the same `form` (their stems, say) share a code."""
    joined = "\0".join(text.replace("\0", " ") for text in texts).lower() + "\0"
    words = WORDS[script].findall(joined)
    codes = {"\n": LINE, "\0": TEXT}
    of_form: dict[str, int] = {}
    for word in dict.fromkeys(words):
        if word not in codes:
            shared = form(word) if form else word
            codes[word] = of_form.setdefault(shared, len(of_form))
    marked = np.fromiter(map(codes.__getitem__, words), np.int64, len(words))
    place = np.cumsum(marked >= 0)  # words so far, at every word and mark
    ends, breaks = marked == TEXT, marked < 0
    return Texts(
        codes=marked[~breaks],
        texts=np.concatenate(([0], place[ends])),
        sentences=np.concatenate(([0], place[breaks])),
        lines=np.concatenate(([0], np.cumsum(breaks)[ends])),
        vocabulary=max(1, len(of_form)),
    )


def rouge_form(irregular: dict[str, str] | None = None) -> Callable[[str], str]:
    """The stem of a word of over three letters, as ROUGE-1.5.5 takes it: an irregular form is
    replaced by what `irregular` says and not stemmed.
    """
    listed = irregular or {}
    return lambda word: word if len(word) <= 3 else listed.get(word) or stem(word)


def squad_form(text: str) -> str:
    """A text without case, punctuation, articles and double spaces, as SQuAD's published evaluation
    compares answers (Rajpurkar et al. 2016).
    """
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())
