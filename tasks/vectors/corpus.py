"""The words of a text artifact, as word vectors are made of them: in lower case, in one file.

A document is a line, or several where it is long: no more than word2vec takes for a sentence.
Windows do not reach from line to line.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.store import Draft
from tasks.data.kernels.words import word_pattern
from tasks.data.text import read_batches
from tasks.vectors.settings import VectorSettings

if TYPE_CHECKING:
    from numpy.typing import NDArray

LINE_WORDS = 10_000  # MAX_SENTENCE_LENGTH of word2vec, and of gensim


@dataclass(frozen=True)
class Corpus:
    """The file of all words, its lines, and the count of each word in the text."""

    path: Path
    lines: int
    counts: Counter[str]

    @property
    def tokens(self) -> int:
        """Words of the text, repeats and all."""
        return self.counts.total()

    def vocabulary(self, settings: VectorSettings) -> dict[str, int]:
        """The words that get vectors with their counts, the most frequent first. Raises BadInput
        where there are fewer than two.
        """
        often = [(word, n) for word, n in self.counts.items() if n >= settings.min_count]
        found = sorted(often, key=lambda item: (-item[1], item[0]))[: settings.max_words]
        if len(found) < 2:
            raise BadInput(
                f"{len(found)} of {len(self.counts):,} different words occur {settings.min_count} "
                "times or more; vectors take two: lower vectors.min_count, or give more text"
            )
        return dict(found)

    def numbered(self, words: dict[str, int]) -> "Iterator[NDArray[np.int32]]":
        """Each line as the places of its words in a vocabulary, -1 for words without one."""
        place = {word: number for number, word in enumerate(words)}
        with self.path.open(encoding="utf-8") as lines:
            for line in lines:
                yield np.fromiter((place.get(word, -1) for word in line.split()), np.int32)


def write_words(text: Artifact, path: Path, draft: Draft) -> Corpus:
    """Write the words of all documents to a file, and count them."""
    counts: Counter[str] = Counter()
    pattern, lines, done = word_pattern(), 0, 0
    total = text.manifest.rows or 0
    with path.open("w", encoding="utf-8") as file:
        for batch in read_batches(text, ["text"]):
            for document in batch.column("text").to_pylist():
                words = pattern.findall(document.lower())
                counts.update(words)
                for first in range(0, len(words), LINE_WORDS):
                    file.write(" ".join(words[first : first + LINE_WORDS]) + "\n")
                    lines += 1
            done += batch.num_rows
            draft.progress(done, total, "rows")
    return Corpus(path, lines, counts)
