"""Two texts and a question about them: next sentence, sentence order, sentence comparison.

Letters: N tokens of a text, A and B the two texts, V vocabulary.
"""

import numpy as np

from model.objectives.rows import Row, text_row

YES = 0.5
"""Share of the pairs of which the answer is yes."""


def one_document(tokens_N: np.ndarray, end: int) -> np.ndarray:
    """The longest stretch of a sample that lies in one document, without its end token."""
    pieces = np.split(tokens_N, np.flatnonzero(tokens_N == end))
    return max((p[p != end] for p in pieces), key=len)


def choose_cut(
    tokens_N: np.ndarray, ends_sentence_V: np.ndarray, random: np.random.Generator
) -> int:
    """Where a text falls into two: behind a sentence chosen at random, or, in a text of one
    sentence, in the middle.
    """
    ends = np.flatnonzero(ends_sentence_V[tokens_N[:-1]]) + 1
    return int(random.choice(ends)) if len(ends) else len(tokens_N) // 2


def choose_second(
    second_B: np.ndarray, other: np.ndarray, room: int, random: np.random.Generator
) -> tuple[np.ndarray, int]:
    """In half of the cases the text that follows, label 1, else another one, label 0.

    `other` is cut to `room` tokens. Without another text the answer is always yes.
    """
    follows = random.random() < YES or not len(other)
    return (second_B, 1) if follows else (other[:room], 0)


def choose_order(
    first_A: np.ndarray, second_B: np.ndarray, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, int]:
    """In half of the cases two texts as they came, label 1, else swapped, label 0.

    Lan et al. 2020 (ALBERT), section 3.1: topic alone does not tell.
    """
    return (first_A, second_B, 1) if random.random() < YES else (second_B, first_A, 0)


def joined_row(
    first_A: np.ndarray, second_B: np.ndarray, label: int, class_: int, separator: int
) -> Row:
    """Two texts that see each other: class, A, separator, B, separator (Devlin et al. 2019)."""
    row = text_row([class_], first_A, [separator], second_B, [separator])
    segments = np.ones_like(row["inputs"])
    segments[: len(first_A) + 2] = 0
    return row | {"segments": segments, "labels": np.array(label)}


def separate_row(first_A: np.ndarray, second_B: np.ndarray, label: int, class_: int) -> Row:
    """Two texts that do not see each other, each behind a class token: documents 1 and 2."""
    one, two = text_row([class_], first_A), text_row([class_], second_B)
    two["documents"] = two["documents"] + 1
    row = {name: np.concatenate((one[name], two[name])) for name in one}
    return row | {"labels": np.array(label)}
