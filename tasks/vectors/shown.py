"""What the report shows of word vectors: neighbours of some words, and all of these in a plane."""

from typing import Any

import numpy as np

from tasks.vectors.table import WordVectors

RANKS = (50, 100, 200, 400, 800, 1600, 3200, 6400)
"""Of the words that are shown, the places by frequency: behind those that stand anywhere."""
NEIGHBOURS = 6


def shown(vectors: WordVectors) -> dict[str, Any]:
    """`neighbours`, {word: [[word, cosine], ...]}, and their `projection`, [[word, group, x, y],
    ...], onto the two directions in which they vary most, which have `projected` of the variance.
    """
    last = len(vectors.words) - 1
    ranks = [rank for rank in RANKS if rank <= last] or [last // 2]
    words = [vectors.words[rank] for rank in ranks]
    near = {word: vectors.nearest(word, NEIGHBOURS) for word in words}
    groups = {other.word: group for group, word in enumerate(words) for other in near[word]}
    groups |= {word: group for group, word in enumerate(words)}
    points_N2, share = principal(vectors.units_WD[[vectors.places[word] for word in groups]])
    projection = [
        [word, group, round(float(x), 4), round(float(y), 4)]
        for (word, group), (x, y) in zip(groups.items(), points_N2, strict=True)
    ]
    neighbours = {word: [[n.word, round(n.similarity, 4)] for n in near[word]] for word in words}
    return {"neighbours": neighbours, "projection": projection, "projected": share}


def principal(points_ND: np.ndarray) -> tuple[np.ndarray, float]:
    """Points in the plane of their first two principal components, [N, 2], and the share of their
    variance that it has.
    """
    centred_ND = points_ND - points_ND.mean(0)
    left_NK, values_K, _ = np.linalg.svd(centred_ND, full_matrices=False)
    plane_N2 = np.zeros((len(points_ND), 2))
    plane_N2[:, : len(values_K)] = (left_NK * values_K)[:, :2]
    total = float((values_K**2).sum())
    return plane_N2, float((values_K[:2] ** 2).sum()) / total if total else 0.0
