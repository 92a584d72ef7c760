"""Where rows to tune on come from: the embedded corpus by name, or a JSON-lines file.

A recipe names the data by path; a stage's identity is the content behind it.
"""

from collections import Counter
from pathlib import Path
from typing import Protocol

from cluster.errors import BadInput
from tasks.data.reading.settings import SourceSettings
from tasks.data.reading.sources import PYTHON, python_files, resolve
from tasks.tuning.classify.settings import ClassifySettings
from tasks.tuning.instruct.settings import InstructSettings
from tasks.tuning.pairs import pairs_of_python, snippets_of_python
from tasks.tuning.rows import (
    Pair,
    Snippet,
    distinct,
    read_pairs,
    read_snippets,
    split,
    split_each_class,
)


def labelled_rows(
    settings: ClassifySettings,
) -> tuple[list[Snippet], list[Snippet], Counter[str]]:
    """Training rows, held-out rows and why others are neither; each text occurs once.

    Raises BadInput when a row is unusable, one side is empty, training rows have fewer than two
    classes, or held-out rows have a class that those lack.
    """
    found = _snippets(settings)
    rows = distinct(found, lambda row: row.text)
    rejects = Counter(repeated_text=len(found) - len(rows))
    if settings.heldout is None:
        train, heldout = split_each_class(rows, settings.heldout_share)
    else:
        measured = read_snippets(row_file(settings.heldout), settings.text, settings.label)
        heldout = distinct(measured, lambda row: row.text)
        rejects["repeated_text"] += len(measured) - len(heldout)
        known = {row.text for row in heldout}
        train = [row for row in rows if row.text not in known]
        rejects["also_held_out"] = len(rows) - len(train)
    _check_classes(settings, train, heldout)
    return train, heldout, +rejects


def instruction_pairs(settings: InstructSettings) -> tuple[list[Pair], list[Pair], Counter[str]]:
    """Training pairs, held-out pairs and why others are neither; no instruction is in both."""
    found = _pairs(settings.data)
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


class OfData(Protocol):
    """Settings that name rows."""

    @property
    def data(self) -> str:
        """What the rows are in."""


def describe(settings: OfData) -> str:
    """What the figures of a tuning are about, for the report."""
    if not settings.data.startswith(PYTHON):
        return f"rows of {Path(settings.data).name}"
    if isinstance(settings, ClassifySettings):
        return (
            f"the package a function of {settings.data} comes from, by its first lines; lines that "
            "name the package are kept, and no file is on both sides of the split"
        )
    return (
        f"what a function of {settings.data} does, in its docstring's first sentence; whole "
        "modules are held out of tuning, though pretraining on the same source has read them"
    )


def _snippets(settings: ClassifySettings) -> list[Snippet]:
    if settings.data.startswith(PYTHON):
        files = _python(settings.data)
        return snippets_of_python(files, settings.classes, settings.rows_per_class)
    return read_snippets(row_file(settings.data), settings.text, settings.label)


def _pairs(data: str) -> list[Pair]:
    return pairs_of_python(_python(data)) if data.startswith(PYTHON) else read_pairs(row_file(data))


def _python(data: str) -> list[tuple[str, Path]]:
    files = python_files(data.removeprefix(PYTHON))
    return [(file.name.removeprefix("site-packages/"), file.path) for file in files]


def row_file(data: str) -> Path:
    """The one file of rows that a recipe names. Raises BadInput where it is none."""
    (source,) = resolve((SourceSettings(path=data),))
    if len(source.files) != 1 or source.files[0].format not in (".jsonl", ".ndjson"):
        raise BadInput(
            f"'{data}' is not one .jsonl file (plain, .gz, .zst or .bz2), nor {PYTHON}stdlib"
        )
    return source.files[0].path


def _check_classes(
    settings: ClassifySettings, train: list[Snippet], heldout: list[Snippet]
) -> None:
    classes = {row.label for row in train}
    if len(classes) < 2 or not heldout:
        raise BadInput(
            f"'{settings.data}' leaves {len(train)} training rows of {len(classes)} class(es) and "
            f"{len(heldout)} held-out rows; it takes two classes and a row to measure on"
        )
    if unknown := sorted({row.label for row in heldout} - classes):
        raise BadInput(f"held-out rows have classes no training row has: {', '.join(unknown[:5])}")
