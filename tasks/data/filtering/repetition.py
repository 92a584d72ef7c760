"""How much of a text is n-grams of words over again (Gopher's repetition rules), vectorised.

Rae et al. 2021, arXiv 2112.11446, appendix A.1.1.
"""

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def top_gram_chars(words: list[str], n: int) -> int:
    """Characters covered by the n-gram that occurs most (at least twice; the first of equals)."""
    if len(words) <= n:
        return 0
    grams, lengths = _grams(words, n)
    _, first, counts = np.unique(grams, return_index=True, return_counts=True)
    most = int(counts.max())
    if most < 2:
        return 0
    return most * int(lengths[first[counts == most].min()])


def repeated_gram_chars(words: list[str], n: int) -> int:
    """Characters of the words that lie in an n-gram which occurred before."""
    if len(words) <= n:
        return 0
    grams, _ = _grams(words, n)
    _, first = np.unique(grams, return_index=True)
    again = np.ones(len(grams), bool)
    again[first] = False
    starts = np.concatenate([again, np.zeros(n, bool)]).astype(np.int64)
    covered = np.cumsum(starts - np.roll(starts, n))[: len(words)] > 0
    return int(_lengths(words)[covered].sum())


def _grams(words: list[str], n: int) -> tuple[Ints, Ints]:
    """A number per n-gram, equal for equal ones, and its length in characters."""
    numbers: dict[str, int] = {}
    ids = np.fromiter((numbers.setdefault(w, len(numbers)) for w in words), np.int64, len(words))
    grams = ids
    for k in range(1, n):  # renumbered at each step, so that nothing overflows
        pairs = grams[: len(words) - k] * len(numbers) + ids[k:]
        grams = np.unique(pairs, return_inverse=True)[1].astype(np.int64)
    ends = np.concatenate([[0], np.cumsum(_lengths(words))])
    return grams, ends[n:] - ends[:-n]


def _lengths(words: list[str]) -> Ints:
    return np.fromiter(map(len, words), np.int64, len(words))
