"""The file of rows that a tuning names: one file, by its suffix, and what is in it.

The marks `ROWS` and `COLUMNS` say that a field of settings names such a file; another kind of file
is refused when a run is planned.
"""

from collections.abc import Collection
from pathlib import Path

from cluster.errors import BadInput
from cluster.settings import Content
from tasks.data.reading.formats import data_suffix
from tasks.data.reading.hashes import content_hashes
from tasks.data.reading.settings import SourceSettings
from tasks.data.reading.sources import PYTHON, Source, python_files, resolve

ROW_SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv")
COLUMN_SUFFIXES = (".conllu", ".conll", ".iob", ".bio", ".txt")
"""Suffixes of files with a word a line, its tag in another column."""


def row_file(data: str, suffixes: Collection[str] = ROW_SUFFIXES) -> Path:
    """The one file of this path. Raises BadInput for none, several, or one of another kind."""
    return _source(data, suffixes).files[0].path


def python_rows(data: str) -> list[tuple[str, Path]]:
    """The files of the embedded corpus, by name."""
    files = python_files(data.removeprefix(PYTHON))
    return [(file.name.removeprefix("site-packages/"), file.path) for file in files]


def _source(data: str, suffixes: Collection[str]) -> Source:
    (source,) = resolve((SourceSettings(path=data, format="lines"),))
    named = {data_suffix(file.name) for file in source.files}
    if not source.is_python and (len(source.files) != 1 or not named <= set(suffixes)):
        raise BadInput(f"'{data}' is not one {', '.join(suffixes)} file (plain, .gz, .zst or .bz2)")
    return source


def _rows_hash(data: str) -> str:
    return content_hashes([_source(data, ROW_SUFFIXES)])[0]


def _columns_hash(data: str) -> str:
    return content_hashes([_source(data, ROW_SUFFIXES + COLUMN_SUFFIXES)])[0]


ROWS, COLUMNS = Content(_rows_hash), Content(_columns_hash)
