"""The rows of a task of lm-evaluation-harness, as the `datasets` library would give them.

Rows of JSON and of CSV are typed by the libraries that `datasets` itself uses (pyarrow and pandas),
so that a prompt shows 1.0 where it would there, and a column that a row lacks is null.
"""

import io
from pathlib import Path
from typing import Any, NamedTuple

from cluster.errors import BadInput
from tasks.data.row_files import read_text
from tasks.evaluation.exams.harness.task import DataFile, Task

Row = dict[str, Any]


class Document(NamedTuple):
    """A row, with the name of its file and its number in it, from 1."""

    row: Row
    file: str
    line: int


class Split(NamedTuple):
    """The rows of one split and the names of their columns."""

    documents: list[Document]
    columns: frozenset[str]

    @property
    def rows(self) -> list[Row]:
        """The rows alone."""
        return [one.row for one in self.documents]


def read_split(task: Task, split: str) -> Split:
    """The rows of all files of a split, in order. Raises BadInput for a split that is not there, or
    has no rows, and naming a file that cannot be read.
    """
    files = [file for file in task.files if file.split == split]
    if not files:
        known = ", ".join(dict.fromkeys(file.split for file in task.files))
        raise BadInput(f"task {task.task} has no split '{split}'; its data files have {known}")
    found, columns = list[Document](), dict[str, None]()
    for file in files:
        rows = read_rows(file)
        name = Path(file.path).name
        found += [Document(row, name, number) for number, row in enumerate(rows, 1)]
        columns |= dict.fromkeys(rows[0] if rows else ())
    if not found:
        raise BadInput(f"task {task.task}: split '{split}' has no rows, in {files[0].path}")
    # As `datasets` gives them: every row has every column.
    nothing = dict.fromkeys(columns)
    whole = [one._replace(row=nothing | one.row) for one in found]
    return Split(whole, frozenset(columns))


def read_rows(file: DataFile) -> list[Row]:
    """The rows of a file. Raises BadInput naming it where it cannot be read."""
    path = Path(file.path)
    try:
        return READERS[file.format](path, file.options)
    except BadInput:
        raise
    except Exception as error:  # pyarrow's and pandas's own kinds of errors, and more beside
        raise BadInput(f"{path} cannot be read as {file.format}: {error}") from error


def _json(path: Path, options: dict[str, Any]) -> list[Row]:
    """Objects, one a line or in a list; with `field`, the list is in that key of one object."""
    import json

    import pyarrow as pa
    from pyarrow.json import ReadOptions, read_json

    text = read_text(path)
    field = options.get("field")
    if field is not None or text.lstrip()[:1] == "[":
        whole = json.loads(text)
        rows = whole if field is None else whole[field]
        if rows and not isinstance(rows[0], dict):
            rows = [{"text": one} for one in rows]
        return list(pa.Table.from_pylist(rows).to_pylist())
    content = text.encode()
    if not content.strip():
        return []
    read = ReadOptions(block_size=len(content) + 1)
    return list(read_json(io.BytesIO(content), read_options=read).to_pylist())


def _csv(path: Path, options: dict[str, Any]) -> list[Row]:
    import pandas as pd
    import pyarrow as pa

    told = dict(options)
    if "column_names" in told:
        told["names"] = told.pop("column_names")
    if "delimiter" in told:
        told["sep"] = told.pop("delimiter")
    frame = pd.read_csv(io.StringIO(read_text(path)), **told)
    return list(pa.Table.from_pandas(frame, preserve_index=False).to_pylist())


def _parquet(path: Path, options: dict[str, Any]) -> list[Row]:
    from pyarrow.parquet import read_table

    return list(read_table(path).to_pylist())


def _arrow(path: Path, options: dict[str, Any]) -> list[Row]:
    import pyarrow as pa

    with pa.memory_map(str(path)) as source:
        try:
            table = pa.ipc.open_file(source).read_all()
        except pa.ArrowInvalid:
            table = pa.ipc.open_stream(source).read_all()
        return list(table.to_pylist())


def _text(path: Path, options: dict[str, Any]) -> list[Row]:
    """A row a line, empty ones among them."""
    lines = read_text(path).split("\n")
    return [{"text": line} for line in (lines[:-1] if lines[-1] == "" else lines)]


READERS = {"json": _json, "csv": _csv, "parquet": _parquet, "arrow": _arrow, "text": _text}
