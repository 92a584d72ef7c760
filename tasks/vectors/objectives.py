"""What word2vec's four trainings do with one word and its context, as plain code beside gensim's.

    hidden      skip-gram: the vector of the word in the middle; CBOW: the mean of its context's
    output      negative sampling: 1 + k logistic regressions, this word against k drawn ones;
                hierarchical softmax: one at each turn of the word's path through a Huffman tree

Either output is a sum of logistic losses, -log sigmoid(+-u.h), whose gradients are
(sigmoid(u.h) - label) h of each output vector u, and (sigmoid(u.h) - label) u, summed, of h.

Letters: C words of the context, N output vectors, D width.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float64]


class Step(NamedTuple):
    """The loss of one prediction in nats, and its gradients."""

    loss: float
    hidden_D: Vectors
    outputs_ND: Vectors


def logistic(hidden_D: Vectors, outputs_ND: Vectors, labels_N: Sequence[int]) -> Step:
    """Of N yes-or-no answers about a hidden vector, with labels 1 and 0."""
    scores_N = outputs_ND @ hidden_D
    labels = np.asarray(labels_N)
    loss = np.logaddexp(0, np.where(labels == 1, -scores_N, scores_N)).sum()
    errors_N = 1 / (1 + np.exp(-scores_N)) - labels
    return Step(float(loss), errors_N @ outputs_ND, np.outer(errors_N, hidden_D))


def negative_sampling(hidden_D: Vectors, word_D: Vectors, noise_KD: Vectors) -> Step:
    """-log sigmoid(u.h) of the word that is there, -log sigmoid(-u.h) of each one drawn; its own
    output vector comes first (Mikolov et al. 2013, Distributed representations, eq. 4).
    """
    return logistic(hidden_D, np.vstack([word_D, noise_KD]), [1] + [0] * len(noise_KD))


def hierarchical_softmax(hidden_D: Vectors, nodes_ND: Vectors, code_N: Sequence[int]) -> Step:
    """-log p(word), the product over the inner nodes on its path of sigmoid(u.h), or of
    sigmoid(-u.h) where its Huffman code has a 1 (Mikolov et al. 2013, section 2.1); over all words
    of the tree these probabilities sum to 1.
    """
    return logistic(hidden_D, nodes_ND, [1 - bit for bit in code_N])


def hidden(context_CD: Vectors) -> Vectors:
    """CBOW's hidden vector, the mean of the context's, and skip-gram's, whose context is one word.

    The gradient of each of C words is 1/C of the hidden one's; word2vec moves every word by the
    whole of it, C times as far, and so does gensim.
    """
    return context_CD.mean(0)
