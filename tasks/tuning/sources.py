"""Where rows to tune on come from: the embedded corpus by name, or a file of rows.

A recipe names the data by path; a stage's identity is the content behind it.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from cluster.artifact import Artifact
from cluster.errors import BadInput
from tasks.data.reading.sources import PYTHON
from tasks.synthesis.pairs import rows_of
from tasks.tuning.classify.settings import ClassifySettings
from tasks.tuning.files import python_rows, row_file
from tasks.tuning.instruct.settings import InstructSettings
from tasks.tuning.pairs import pairs_of_python, snippets_of_python
from tasks.tuning.rows import (
    Pair,
    Snippet,
    digest,
    distinct,
    read_pairs,
    read_snippets,
    sides,
    split,
    split_each_class,
)
from tasks.tuning.settings import HeadSettings
from tasks.tuning.text_to_text.settings import PairsSettings


def labelled_rows(
    settings: ClassifySettings,
) -> tuple[list[Snippet], list[Snippet], Counter[str]]:
    """Training rows, held-out rows and why others are neither; each text occurs once.

    Raises BadInput when a row is unusable, one side is empty, training rows have fewer than two
    classes, or held-out rows have a class that those lack.
    """
    files = filter(None, (settings.heldout, settings.data))
    found = {data: _snippets(settings, data) for data in files}
    several = {row.labels is not None for rows in found.values() for row in rows}
    if len(several) > 1:
        raise BadInput(
            f"'{settings.data}': some rows have one class in '{settings.label}' and some a list; "
            "write lists in all of them, or in none"
        )
    divide = split if several == {True} else split_each_class
    asked = (settings.data, settings.heldout, settings.heldout_share)
    train, heldout, rejects = sides(*asked, found.__getitem__, divide)
    _check_classes(settings, train, heldout)
    return train, heldout, rejects


def classes_of(rows: list[Snippet]) -> list[str]:
    """The names of all classes, in order."""
    return sorted({name for row in rows for name in row.classes})


def instruction_pairs(
    settings: InstructSettings, made: Sequence[Pair] = ()
) -> tuple[list[Pair], list[Pair], Counter[str]]:
    """Training pairs, those that a model made among them, held-out pairs and why others are
    neither; no instruction is in both.
    """
    found = [*(_pairs(settings.data) if settings.data else ()), *made]
    rows = distinct(found, lambda row: row.said)
    rejects = Counter(repeated_pair=len(found) - len(rows))
    if settings.heldout is None:
        train, heldout = split(rows, settings.heldout_share)
    else:
        heldout = _pairs(settings.heldout)
        known = {str(row.asked) for row in heldout}
        train = [row for row in rows if str(row.asked) not in known]
        rejects["also_held_out"] = len(rows) - len(train)
    return train, heldout, +rejects


def made_pairs(text: Artifact, sources: Sequence[str]) -> list[Pair]:
    """The pairs in some sources of made text; those from one document are one group."""
    return [
        Pair(row.id, row.pair.asked, row.pair.answer, "", digest(row.document), number)
        for number, row in enumerate(rows_of(text, sources), 1)
    ]


class OfData(Protocol):
    """Settings that name rows."""

    @property
    def data(self) -> str | None:
        """What the rows are in."""


def describe(settings: HeadSettings | OfData) -> str:
    """What the figures of a tuning are about, for the report."""
    if settings.data is None:
        return "instructions and questions that a model made from the text, with its answers"
    if not settings.data.startswith(PYTHON):
        return f"rows of {Path(settings.data).name}"
    if isinstance(settings, ClassifySettings):
        return (
            f"the package a function of {settings.data} comes from, by its first lines; lines that "
            "name the package are kept, and no file is on both sides of the split"
        )
    if isinstance(settings, PairsSettings):
        return f"statements of {settings.data}, each with its syntax in words"
    return (
        f"what a function of {settings.data} does, in its docstring's first sentence; whole "
        "modules are held out of tuning, though pretraining on the same source has read them"
    )


def _snippets(settings: ClassifySettings, data: str) -> list[Snippet]:
    if data.startswith(PYTHON):
        files = python_rows(data)
        return snippets_of_python(files, settings.classes, settings.rows_per_class)
    text, label, second = settings.text, settings.label, settings.second
    return read_snippets(row_file(data), text, label, second, written=settings)


def _pairs(data: str) -> list[Pair]:
    if data.startswith(PYTHON):
        return pairs_of_python(python_rows(data))
    return read_pairs(row_file(data))


def _check_classes(
    settings: ClassifySettings, train: list[Snippet], heldout: list[Snippet]
) -> None:
    classes = set(classes_of(train))
    if len(classes) < 2:
        raise BadInput(
            f"'{settings.data}' leaves {len(train)} training rows of {len(classes)} class(es); it "
            "takes two classes"
        )
    if unknown := sorted(set(classes_of(heldout)) - classes):
        raise BadInput(f"held-out rows have classes no training row has: {', '.join(unknown[:5])}")
