"""A quality classifier: logistic regression on hashed words, word pairs and measures of shape.

Trained on labelled rows (1 is good), judged by repeated cross-validation beside the majority class
and naive Bayes on the same folds. A linear model is one matrix product per batch, its weights are
plain numbers in a file, and a document's score can be explained by them.
(Words and pairs hashed to a fixed number of places: Weinberger et al. 2009; term weights: sublinear
tf-idf, Manning et al. 2008, section 6.4.)
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy import sparse

from tasks.data.filtering.measures import Measures
from tasks.data.kernels import kernel
from tasks.data.kernels.buffers import Bytes, Offsets, text_buffer
from tasks.data.kernels.characters import kinds, lower_case
from tasks.data.kernels.words import FACTOR, Kinds, LowerCase, hash_words, mix

BITS = 18
# Measures of the rules that tell of a text's shape, whatever its words.
SHAPE = (
    "length",
    "alphanumeric_share",
    "mean_line",
    "longest_line",
    "repeated_line_share",
    "bullet_lines",
    "punctuated_lines",
    "short_lines",
    "words",
    "word_length",
    "hashes_per_word",
    "ellipses_per_word",
    "alphabetic_word_share",
    "stop_words",
    "sentences",
    "newlines_per_word",
    "top_2gram_share",
    "top_3gram_share",
    "repeated_5gram_share",
)
COUNTED = ("length", "mean_line", "longest_line", "words", "sentences")
# The measures are dense and few, the words sparse and many: so weighed, neither drowns the other.
MEASURE_SCALE = 0.1
REGULARISATION = 3.0
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Features:
    """What is known of a batch of texts.

    `words` [texts, 2^18]: sparse counts of hashed words and word pairs; `shape` [texts, measures].
    """

    words: sparse.csr_matrix
    shape: Floats

    @classmethod
    def of(cls, texts: pa.Array) -> "Features":
        """The features of each text, in native passes over the buffer."""
        data, offsets = text_buffer(texts)
        places, starts = _hash_features(data, offsets, kinds(), lower_case())
        size = (len(texts), 1 << BITS)
        words = sparse.csr_matrix((np.ones(len(places)), places, starts), size)
        words.sum_duplicates()
        return cls(words, _shape(texts))

    def rows(self, chosen: npt.NDArray[np.int64]) -> "Features":
        """The features of some of the texts."""
        return Features(self.words[chosen], self.shape[chosen])


@dataclass(frozen=True)
class Classifier:
    """Weights by place and by measure; `probability` is that of a good text."""

    idf: Floats
    mean: Floats
    scale: Floats
    weights: Floats
    bias: Floats

    @classmethod
    def train(cls, features: Features, labels: npt.NDArray[np.int64]) -> "Classifier":
        """Fit on texts with labels 0 and 1. Deterministic."""
        from sklearn.linear_model import LogisticRegression

        documents = features.words.getnnz(axis=0)
        idf = np.log((1 + len(labels)) / (1 + documents)) + 1
        scale = features.shape.std(axis=0)
        empty = cls(
            idf,
            features.shape.mean(axis=0),
            np.where(scale > 0, scale, 1.0),
            np.zeros(0),
            np.zeros(1),
        )
        model = LogisticRegression(C=REGULARISATION, max_iter=1000)
        model.fit(empty._inputs(features), labels)
        return cls(empty.idf, empty.mean, empty.scale, model.coef_[0], model.intercept_)

    def probability(self, features: Features) -> Floats:
        """How likely each text is good, 0 to 1."""
        score: Floats = self._inputs(features) @ self.weights + self.bias[0]
        return 1 / (1 + np.exp(-score))

    def save(self, path: Path) -> None:
        """Write the weights."""
        np.savez(path, **vars(self))

    @classmethod
    def load(cls, path: Path) -> "Classifier":
        """The classifier that `save` wrote."""
        with np.load(path) as arrays:
            return cls(**arrays)

    def _inputs(self, features: Features) -> Any:
        """Unit-length tf-idf rows beside standardised measures, `[texts, 2^18 + measures]`."""
        words = features.words.copy()
        words.data = (1 + np.log(words.data)) * self.idf[words.indices]
        length = np.sqrt(words.multiply(words).sum(axis=1)).A1
        words = sparse.diags(1 / np.maximum(length, 1e-12)) @ words
        shape = (features.shape - self.mean) / self.scale * MEASURE_SCALE
        return sparse.hstack([words, sparse.csr_matrix(shape)], format="csr")


def cross_validate(
    features: Features, labels: npt.NDArray[np.int64], folds: int = 10, repeats: int = 5
) -> dict[str, float]:
    """Accuracy on rows held out in turn, `repeats` times over, with its 95 % interval.

    Keys: `accuracy`, `low`, `high` (Wald, from the number of rows: repeats do not add rows),
    `majority`, `naive_bayes` (multinomial, on which words occur, same folds), `rows`.
    """
    from sklearn.model_selection import RepeatedStratifiedKFold
    from sklearn.naive_bayes import MultinomialNB

    splits = RepeatedStratifiedKFold(n_splits=folds, n_repeats=repeats, random_state=0)
    present = features.words.sign()
    ours, bayes = [], []
    for train, test in splits.split(labels, labels):
        model = Classifier.train(features.rows(train), labels[train])
        ours.append(np.mean((model.probability(features.rows(test)) > 0.5) == labels[test]))
        naive = MultinomialNB().fit(present[train], labels[train])
        bayes.append(np.mean(naive.predict(present[test]) == labels[test]))
    accuracy = float(np.mean(ours))
    half = 1.96 * math.sqrt(accuracy * (1 - accuracy) / len(labels))
    return {
        "accuracy": accuracy,
        "low": accuracy - half,
        "high": accuracy + half,
        "majority": float(max(labels.mean(), 1 - labels.mean())),
        "naive_bayes": float(np.mean(bayes)),
        "rows": float(len(labels)),
    }


def _shape(texts: pa.Array) -> Floats:
    """`[texts, measures]`, counts as logarithms: ten words more matter less among a thousand."""
    measures = Measures(texts, SHAPE)
    everything = np.ones(len(texts), np.bool_)
    columns = {name: measures.column(name, everything) for name in SHAPE}
    columns |= {name: np.log1p(columns[name]) for name in COUNTED}
    return np.stack(list(columns.values()), axis=1)


@kernel
def _hash_features(
    data: Bytes, offsets: Offsets, kinds: Kinds, lower: LowerCase
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Places of the words and pairs of all texts, and where those of each text begin."""
    rows = len(offsets) - 1
    starts = np.zeros(rows + 1, np.int64)
    places = np.empty(offsets[rows] - offsets[0] + 4 * rows + 4, np.int32)
    longest = 0
    for row in range(rows):
        longest = max(longest, offsets[row + 1] - offsets[row])
    words = np.empty(longest // 2 + 2, np.uint64)
    shift, count = np.uint64(64 - BITS), 0
    for row in range(rows):
        found = hash_words(data, offsets[row], offsets[row + 1], kinds, lower, words)
        for j in range(found):
            places[count] = np.int32(words[j] >> shift)
            count += 1
            if j:
                places[count] = np.int32(mix(words[j - 1] * FACTOR + words[j]) >> shift)
                count += 1
        starts[row + 1] = count
    return places[:count], starts
