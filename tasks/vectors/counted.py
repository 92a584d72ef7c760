"""Vectors that are counted: one-hot ones, and those of the words that stand near.

Letters: W words, D width.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from cluster.errors import BadInput
from tasks.vectors.settings import VectorSettings

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix

MOST_ONE_HOT = 10_000  # 400 MB
PIECE = 1_000_000  # places counted at a time, which bounds the memory


def one_hot(words: int) -> "NDArray[np.float32]":
    """A vector for each word with a 1 in its own place, [W, W]: all are as far apart. Raises
    BadInput where that is too large.
    """
    if words > MOST_ONE_HOT:
        raise BadInput(
            f"one_hot takes {words:,} numbers for each of {words:,} words; at most "
            f"{MOST_ONE_HOT:,} words: `--set vectors.max_words={MOST_ONE_HOT}`"
        )
    return np.eye(words, dtype=np.float32)


def cooccurrences(lines: "Iterable[NDArray[np.int32]]", words: int, window: int) -> "csr_matrix":
    """How often each word stands at most `window` places from each other one, [W, W], symmetric.

    Words without a vector, -1, take up a place and are not counted.
    """
    from scipy.sparse import coo_matrix, csr_matrix

    found = csr_matrix((words, words), dtype=np.float64)
    for places in _pieces(lines, window):
        for distance in range(1, window + 1):
            left, right = places[:-distance], places[distance:]
            both = (left >= 0) & (right >= 0)
            ones = np.ones(np.count_nonzero(both))
            pairs = coo_matrix((ones, (left[both], right[both])), found.shape)
            found = found + pairs.tocsr()
    return (found + found.T).tocsr()


def ppmi(counts_WW: "csr_matrix", noise_power: float) -> "csr_matrix":
    """Positive pointwise mutual information, max(0, log p(word, context) / p(word) p(context)),
    the contexts' probabilities being those of their counts to the `noise_power`.

    Source: Levy, Goldberg & Dagan, Improving distributional similarity with lessons learned from
    word embeddings, 2015, sections 2.1 and 3.1.
    """
    counts = counts_WW.tocoo()
    word_W = np.asarray(counts_WW.sum(1)).ravel()
    context_W = np.asarray(counts_WW.sum(0)).ravel() ** noise_power
    expected = word_W[counts.row] * context_W[counts.col] / context_W.sum()
    counts.data = np.maximum(np.log(counts.data / expected), 0)
    found = counts.tocsr()
    found.eliminate_zeros()
    return found


def reduced(matrix_WW: "csr_matrix", settings: VectorSettings, seed: int) -> "NDArray[np.float32]":
    """The rows of U times the singular values to `sigma_power`, [W, D], of the truncated singular
    value decomposition: the nearest matrix of rank D (Eckart & Young 1936). Raises BadInput for a
    width that the vocabulary does not have.
    """
    from scipy.sparse.linalg import svds

    words, width = matrix_WW.shape[0], settings.width
    if width >= words:
        raise BadInput(
            f"vectors.width is {width}, but there are {words} words; ppmi_svd takes fewer numbers "
            "than words: lower it, or vectors.min_count"
        )
    start = np.random.default_rng(seed).standard_normal(words)
    left_WD, values_D, _ = svds(matrix_WW, k=width, v0=start)
    order = np.argsort(-values_D)
    return (left_WD[:, order] * values_D[order] ** settings.sigma_power).astype(np.float32)


def _pieces(lines: "Iterable[NDArray[np.int32]]", window: int) -> "Iterable[NDArray[np.int32]]":
    """Lines side by side, so many places between them that no window reaches over."""
    between = np.full(window, -1, np.int32)
    held: list[NDArray[np.int32]] = []
    size = 0
    for line in lines:
        held += [line, between]
        size += len(line) + window
        if size >= PIECE:
            yield np.concatenate(held)
            held, size = [], 0
    if held:
        yield np.concatenate(held)
