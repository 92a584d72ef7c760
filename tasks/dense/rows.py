"""Texts with classes or numbers, as dense features and labels.

Letters: N rows, D features.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from cluster.errors import BadInput
from tasks.data.kernels.words import word_pattern
from tasks.data.reading.sources import PYTHON
from tasks.dense.settings import DenseSettings
from tasks.tuning.classify.settings import ClassifySettings
from tasks.tuning.files import python_rows, row_file
from tasks.tuning.pairs import snippets_of_python
from tasks.tuning.rows import Snippet, read_snippets, sides
from tasks.tuning.sources import classes_of, labelled_rows
from tasks.vectors.table import WordVectors


class Side(NamedTuple):
    """Rows, their features [N, D], and their classes [N] or numbers [N, 1]."""

    rows: list[Snippet]
    features_ND: np.ndarray
    labels: np.ndarray


class Rows(NamedTuple):
    """Both sides, the names of the classes (none of numbers), and why other rows are in neither."""

    train: Side
    heldout: Side
    names: list[str]
    rejects: Counter[str]


def read_rows(settings: DenseSettings, vectors: WordVectors) -> Rows:
    """The rows of the settings. Features are less their mean, over their deviation, both those of
    the training rows. Raises BadInput for rows that are unusable.
    """
    if settings.loss == "mse":
        train, heldout, rejects = _numbered(settings)
        names: list[str] = []
    else:
        train, heldout, rejects = _classed(settings)
        names = classes_of(train)
    features_ND = mean_vectors([row.text for row in train], vectors)
    mean_D, deviation_D = features_ND.mean(0), features_ND.std(0)
    scale_D = np.where(deviation_D > 0, deviation_D, 1)
    measured_ND = mean_vectors([row.text for row in heldout], vectors)
    return Rows(
        Side(train, (features_ND - mean_D) / scale_D, _labels(train, names)),
        Side(heldout, (measured_ND - mean_D) / scale_D, _labels(heldout, names)),
        names,
        rejects,
    )


def mean_vectors(texts: Sequence[str], vectors: WordVectors) -> np.ndarray:
    """The mean of the vectors of each text's words, [N, D] fp32; 0 where none has one. Of one-hot
    vectors it is the share of each word: a bag of words.
    """
    found_ND = np.zeros((len(texts), vectors.vectors_WD.shape[1]), np.float32)
    for row, text in enumerate(texts):
        places = [vectors.place(word) for word in word_pattern().findall(text.lower())]
        if known := [place for place in places if place is not None]:
            found_ND[row] = vectors.vectors_WD[known].mean(0)
    return found_ND


def _classed(settings: DenseSettings) -> tuple[list[Snippet], list[Snippet], Counter[str]]:
    asked = ClassifySettings(
        data=settings.data, heldout=settings.heldout, heldout_share=settings.heldout_share,
        text=settings.text, label=settings.label, classes=settings.classes,
        rows_per_class=settings.rows_per_class,
    )  # fmt: skip
    train, heldout, rejects = labelled_rows(asked)
    if train[0].labels is not None:
        raise BadInput(f"'{settings.label}' of {settings.data} has lists; a row has one class here")
    return train, heldout, rejects


def _numbered(settings: DenseSettings) -> tuple[list[Snippet], list[Snippet], Counter[str]]:
    read = partial(_read, settings)
    return sides(settings.data, settings.heldout, settings.heldout_share, read)


def _read(settings: DenseSettings, data: str) -> list[Snippet]:
    """Rows with numbers; of the embedded corpus the logarithm of how many words they have."""
    if not data.startswith(PYTHON):
        return read_snippets(row_file(data), settings.text, settings.label)
    rows = snippets_of_python(python_rows(data), settings.classes, settings.rows_per_class)
    sizes = (len(word_pattern().findall(row.text)) for row in rows)
    return [replace(r, label=str(math.log2(n or 1))) for r, n in zip(rows, sizes, strict=True)]


def _labels(rows: Sequence[Snippet], names: Sequence[str]) -> np.ndarray:
    if names:
        return np.array([names.index(row.label) for row in rows], np.int64)
    return np.array([[row.number()] for row in rows], np.float32)
