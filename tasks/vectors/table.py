"""A table of word vectors: what is near, what is analogous; word2vec's files.

Letters: W words, D width, Q questions.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cluster.errors import BadInput
from cluster.settings import nearest as hint

if TYPE_CHECKING:
    from numpy.typing import NDArray

FILE = "vectors.bin"
BATCH = 256
FORMS = {".bin": True, ".txt": False}
"""Suffixes of word2vec's files, and whether they are binary."""


class Near(NamedTuple):
    """A word and the cosine of its angle to what was asked for."""

    word: str
    similarity: float


@dataclass(frozen=True)
class WordVectors:
    """Words, the most frequent first, and their vectors [W, D]."""

    words: list[str]
    vectors_WD: "NDArray[np.float32]"

    @cached_property
    def places(self) -> dict[str, int]:
        """The row of each word."""
        return {word: place for place, word in enumerate(self.words)}

    @cached_property
    def units_WD(self) -> "NDArray[np.float32]":
        """The vectors, of length 1."""
        lengths = np.linalg.norm(self.vectors_WD, axis=1, keepdims=True)
        return self.vectors_WD / np.maximum(lengths, 1e-12)

    def place(self, word: str) -> int | None:
        """The row of a word, as it is written or in lower case; None where it has no vector."""
        return self.places.get(word, self.places.get(word.lower()))

    def known(self, word: str) -> int:
        """The same. Raises BadInput, with a word like it, where it has no vector."""
        if (place := self.place(word)) is None:
            like = [w for w in self.words if w[:1] == word.lower()[:1]] or self.words
            raise BadInput(f"'{word}' has no vector; {_few(hint(word.lower(), like))}")
        return place

    def similarity(self, pairs_Q2: "NDArray[np.intp]") -> "NDArray[np.float32]":
        """The cosine of each pair of rows, [Q]."""
        left_QD, right_QD = self.units_WD[pairs_Q2[:, 0]], self.units_WD[pairs_Q2[:, 1]]
        return np.einsum("qd,qd->q", left_QD, right_QD)

    def nearest(self, word: str, count: int) -> list[Near]:
        """The words whose vectors point most like this one's."""
        place = self.known(word)
        return self._nearest(self.units_WD[place], {place}, count)

    def analogous(self, a: str, b: str, c: str, count: int) -> list[Near]:
        """What is to c as b is to a: nearest to b - a + c, of unit vectors, but for these words
        (Mikolov, Yih & Zweig, Linguistic regularities in continuous space word representations,
        2013, section 4).
        """
        rows = [self.known(word) for word in (a, b, c)]
        first_D, second_D, third_D = self.units_WD[rows]
        return self._nearest(second_D - first_D + third_D, set(rows), count)

    def answers(self, questions_Q3: "NDArray[np.intp]") -> "NDArray[np.intp]":
        """The row of the best answer to each analogy, [Q], as `analogous` has it."""
        found = [np.empty(0, np.intp)]
        for first in range(0, len(questions_Q3), BATCH):
            asked = questions_Q3[first : first + BATCH]
            a_QD, b_QD, c_QD = (self.units_WD[asked[:, i]] for i in range(3))
            scores_QW = (b_QD - a_QD + c_QD) @ self.units_WD.T
            np.put_along_axis(scores_QW, asked, -np.inf, axis=1)
            found.append(scores_QW.argmax(1))
        return np.concatenate(found)

    def _nearest(self, point_D: "NDArray[np.float32]", but: set[int], count: int) -> list[Near]:
        scores_W = self.units_WD @ (point_D / max(float(np.linalg.norm(point_D)), 1e-12))
        order = [int(row) for row in np.argsort(-scores_W)[: count + len(but)]]
        kept = [row for row in order if row not in but][:count]
        return [Near(self.words[row], float(scores_W[row])) for row in kept]


def read_vectors(path: Path) -> WordVectors:
    """The vectors of a word2vec file, binary or text, whatever its name. Raises BadInput for
    another file.
    """
    from gensim.models import KeyedVectors

    try:
        found = KeyedVectors.load_word2vec_format(str(path), binary=_is_binary(path))
    except (ValueError, EOFError, AssertionError, OSError) as error:
        raise BadInput(
            f"{path} is not read as word2vec's format, a line with the numbers of words and of "
            f"their dimensions, then a word and its vector each: {error}"
        ) from error
    return WordVectors(list(found.index_to_key), found.vectors)


def write_vectors(vectors: WordVectors, path: Path) -> None:
    """A word2vec file, binary by the suffix .bin, text by .txt. Raises BadInput for another."""
    if path.suffix not in FORMS:
        raise BadInput(f"{path}: word2vec's files end in .bin (binary) or .txt (text)")
    binary = FORMS[path.suffix]
    with path.open("wb") as file:
        file.write(b"%d %d\n" % vectors.vectors_WD.shape)
        for word, vector_D in zip(vectors.words, vectors.vectors_WD, strict=True):
            numbers = vector_D.tobytes() if binary else " ".join(map(str, vector_D)).encode()
            file.write(word.encode() + b" " + numbers + b"\n")


def _is_binary(path: Path) -> bool:
    """Whether what follows the first line is no text of words and numbers."""
    with path.open("rb") as file:
        file.readline(100)
        line = file.readline(1 << 20)
    try:
        return not [float(number) for number in line.decode().split()[1:]]
    except ValueError:  # UnicodeDecodeError is one
        return True


def _few(text: str) -> str:
    """A hint that does not list a whole vocabulary."""
    return text if text.startswith("did") else "it must occur in the text vectors.min_count times"
