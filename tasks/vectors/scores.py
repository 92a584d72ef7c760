"""How well word vectors agree with people: files of rated pairs, and of analogies.

A file of pairs has two words and a rating a line, parted by tabs, commas, semicolons or blanks, as
WordSim-353 and MEN have it; of more columns the rating is the first number, as in SimLex-999. Lines
that begin with #, and a header, are no pairs.
A file of analogies has four words a line, in sections that begin with a colon. Words without a
vector are counted and left out, in both.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cluster.errors import BadInput
from tasks.data.row_files import read_text
from tasks.evaluation.statistics.intervals import correlation, known, statistic_interval
from tasks.evaluation.statistics.wilson import wilson_interval
from tasks.vectors.table import WordVectors

NUMBER = re.compile(r"-?(\d+\.?\d*|\.\d+)")


class Pair(NamedTuple):
    """Two words and what people say of how similar they are."""

    first: str
    second: str
    rating: float


def score_pairs(vectors: WordVectors, path: Path) -> dict[str, Any]:
    """Spearman's correlation of cosines and ratings: `file`, `spearman` with its 95 % `interval`,
    `n` pairs, and `unknown` ones. Raises BadInput where fewer than three pairs have vectors.
    """
    pairs = read_pairs(path)
    rows = [(vectors.place(p.first), vectors.place(p.second), p.rating) for p in pairs]
    asked = [row for row in rows if None not in row]
    if len(asked) < 3:
        raise BadInput(f"{path}: {len(asked)} of {len(pairs)} pairs have vectors; three are needed")
    *words, ratings = zip(*asked, strict=True)
    data = np.column_stack([vectors.similarity(np.array(words).T), ratings])

    def spearman(rows: np.ndarray) -> float:
        return correlation("spearman", rows)

    return {
        "file": path.name,
        "spearman": known(spearman(data)),
        "interval": [known(end) for end in statistic_interval(spearman, data)],
        "n": len(asked),
        "unknown": len(pairs) - len(asked),
    }


def score_analogies(vectors: WordVectors, path: Path) -> dict[str, Any]:
    """The share of analogies whose best answer is the right word: `file`, `accuracy` with its 95 %
    `interval` (Wilson), `n` answered, `unknown` ones, and `sections` {name: {accuracy, n}}. Raises
    BadInput where none is answered.
    """
    sections = read_analogies(path)
    found, unknown = {}, 0
    for name, questions in sections.items():
        rows = [[vectors.place(word) for word in question] for question in questions]
        asked = np.array([row for row in rows if None not in row], np.intp).reshape(-1, 4)
        right = vectors.answers(asked[:, :3]) == asked[:, 3]
        unknown += len(rows) - len(asked)
        found[name] = (int(right.sum()), len(asked))
    right, n = (sum(counts) for counts in zip(*found.values(), strict=True))
    if not n:
        raise BadInput(f"{path}: none of {unknown} analogies has vectors for all its words")
    return {
        "file": path.name,
        "accuracy": right / n,
        "interval": list(wilson_interval(right, n)),
        "n": n,
        "unknown": unknown,
        "sections": {name: {"accuracy": r / n, "n": n} for name, (r, n) in found.items() if n},
    }


def read_pairs(path: Path) -> list[Pair]:
    """Rated pairs of words. Raises BadInput naming the line for what is none."""
    pairs: list[Pair] = []
    for number, line in _lines(path):
        mark = next((mark for mark in "\t,;" if mark in line), None)
        fields = [field.strip() for field in line.split(mark)]
        rating = next((float(field) for field in fields[2:] if NUMBER.fullmatch(field)), None)
        if rating is not None:
            pairs.append(Pair(fields[0], fields[1], rating))
        elif pairs or len(fields) < 3:  # else the header
            raise BadInput(
                f"{path}, line {number}: expected two words and a number, found {line!r}"
            )
    return pairs


def read_analogies(path: Path) -> dict[str, list[list[str]]]:
    """Analogies of four words, by section. Raises BadInput naming the line for what is none."""
    found: dict[str, list[list[str]]] = {}
    section = "all"
    for number, line in _lines(path):
        words = line.split()
        if line.startswith(":"):
            section = line[1:].strip()
        elif len(words) == 4:
            found.setdefault(section, []).append(words)
        else:
            raise BadInput(f"{path}, line {number}: expected four words, found {line!r}")
    if not found:
        raise BadInput(f"{path} has no analogies; write four words a line: king queen man woman")
    return found


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file, plain or compressed, that say something, with their numbers."""
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            yield number, line.strip()
