"""Files of rows, as tuning and scoring read and write them: one JSON object a line, or CSV.

A file by the name of `.csv` or `.tsv` (or such a one compressed, or one whose name says nothing, as
a pipe's, and that does not begin as JSON does) has a header; what parts its columns is a comma, a
semicolon or a tab. Its cells are texts.
"""

import csv
import gzip
import io
import json
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic import ValidationError

from cluster.errors import BadInput
from cluster.files import write_atomically
from cluster.settings import nearest
from tasks.data.reading.formats import compression, data_suffix, separator
from tasks.data.reading.settings import TableSettings

GZIP = b"\x1f\x8b"
TABLES, LINES = (".csv", ".tsv"), (".jsonl", ".ndjson", ".json")
Rows = list[tuple[int, dict[str, Any]]]
Columns = Mapping[str, Sequence[str]]
"""By the name of one of our fields, the file's names of it."""
USUAL = TableSettings()
"""A table with a header line, whose cells may stand in quotes."""


class RowLayout(NamedTuple):
    """How a file of rows is laid out: its own names of our fields, and how a table is written."""

    columns: Columns = MappingProxyType({})
    table: TableSettings = USUAL


AS_THEY_ARE = RowLayout()
"""Fields by our names, and a usual table."""


def read_row_file(path: Path, layout: RowLayout = AS_THEY_ARE) -> Rows:
    """The rows of a file, plain or compressed, with the numbers of their lines (of several, the
    last); blank lines are none. A field that the file names another way has our name, too.

    Raises BadInput naming file and line, or a column that no row has, with the nearest.
    """
    text, columns = read_text(path), layout.columns
    found = _table(path, text, layout.table) if _is_table(path, text) else _objects(path, text)
    if not columns or not found:
        return found
    names = {name for _, row in found for name in row}
    for ours, wanted in columns.items():
        if missing := [name for name in wanted if name not in names]:
            raise BadInput(
                f"--columns {ours}={missing[0]}: {path} has no '{missing[0]}'; "
                f"{nearest(missing[0], names)}"
            )
    return [(number, _renamed(row, columns)) for number, row in found]


def read_layout(columns: Columns, header: str | None = None, quotes: bool = True) -> RowLayout:
    """A layout with the names of a table's columns, with commas, where it has no header line.

    Raises BadInput for a name that is there twice.
    """
    names = tuple(name.strip() for name in next(csv.reader([header]))) if header else None
    try:
        return RowLayout(columns, TableSettings(header=names, quotes=quotes))
    except ValidationError as error:
        raise BadInput(f"--header {header}: {error.errors()[0]['ctx']['error']}") from None


def read_columns(text: str | None, known: Collection[str], lists: Collection[str] = ()) -> Columns:
    """What `--columns OURS=THEIRS,...` says; a name among `lists` may come several times, and is
    then the list of these. A name that has a comma stands with its pair in double quotes.

    Raises BadInput for what is no pair and for a name of ours that is not `known`.
    """
    found: dict[str, tuple[str, ...]] = {}
    for pair in next(csv.reader([text]), []) if text else ():
        ours, _, theirs = (part.strip() for part in pair.partition("="))
        if not ours or not theirs:
            raise BadInput(
                f"--columns {pair}: write OURS=THEIRS with commas; ours are {', '.join(known)}"
            )
        if ours not in known:
            raise BadInput(f"--columns {pair}: no '{ours}' is read here; {nearest(ours, known)}")
        if ours in found and ours not in lists:
            raise BadInput(f"--columns {pair}: '{ours}' is '{found[ours][0]}' already")
        found[ours] = (*found.get(ours, ()), theirs)
    return found


def has(row: Mapping[str, Any]) -> str:
    """What a row has instead of a field that is not there, and how that is made good."""
    return (
        f"it has {', '.join(row) or 'none'}; `--columns` gives fields that have other names, and "
        "`--header` those of a table whose first line is a row already"
    )


def write_json_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write one object a line, in ASCII: half a surrogate pair, which JSON can hold, stays one."""
    write_atomically(path, "".join(json.dumps(row) + "\n" for row in rows))


def _is_table(path: Path, text: str) -> bool:
    suffix = data_suffix(path.name)
    return suffix in TABLES or (suffix not in LINES and text.lstrip()[:1] not in ("{", "["))


def _objects(path: Path, text: str) -> Rows:
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise BadInput(f"{path}, line {number} is not JSON: {error}") from error
            if not isinstance(row, dict):
                raise BadInput(f"{path}, line {number} is not a JSON object: {row!r:.60}")
            found.append((number, row))
    return found


def _table(path: Path, text: str, written: TableSettings) -> Rows:
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    # Quotes that do not match would join rows without a word: strict.
    cells = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=separator(text, data_suffix(path.name), written.header),
        strict=True,
        quoting=csv.QUOTE_MINIMAL if written.quotes else csv.QUOTE_NONE,
    )
    found = []
    try:
        header = [name.strip() for name in written.header or next(cells, [])]
        names = [name for name in header if name]  # a spreadsheet may leave empty ones at the end
        if len(set(names)) < len(names):
            raise BadInput(f"{path}: a column is named twice: {', '.join(names)}")
        for row in cells:
            if row and len(row) != len(header):
                raise BadInput(
                    f"{path}, line {cells.line_num} has {len(row)} cells below {len(header)} "
                    "columns; a cell that holds the separator stands in double quotes"
                )
            if row:
                named = zip(header, row, strict=True)
                found.append((cells.line_num, {name: cell for name, cell in named if name}))
    except csv.Error as error:
        raise BadInput(
            f"{path}, line {cells.line_num}: {error}; a cell with quotes stands in quotes, its own "
            'doubled: "a ""word"" of it"; `--no-quotes` (in a recipe `quotes: false`) takes them '
            "as they are"
        ) from error
    return found


def _renamed(row: dict[str, Any], columns: Columns) -> dict[str, Any]:
    """A field of ours is what was named, even where that is absent from this row."""
    found = {name: value for name, value in row.items() if name not in columns}
    for ours, names in columns.items():
        if len(names) > 1:
            found[ours] = [row[name] for name in names if row.get(name) not in (None, "")]
        elif names[0] in row:
            found[ours] = row[names[0]]
    return found


def read_text(path: Path) -> str:
    """The text of a file, plain or compressed. A plain one may also be a pipe, such as
    the shell's `<(...)`.
    """
    try:
        if compression(path.name):
            from tasks.data.reading.decompress import read_chunks

            content = b"".join(read_chunks(path))
        else:
            content = path.read_bytes()
            if content.startswith(GZIP):
                content = gzip.decompress(content)
        return content.removeprefix(b"\xef\xbb\xbf").decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read as UTF-8 text: {error}") from error
