"""Rows of one entry by its format: good ones as records or batches, others with a reason.

`.txt .md .rst .py .html` are one document each; the other formats have many rows. A byte order mark
is dropped.
"""

import csv
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from cluster.errors import BadInput
from tasks.data.reading import rows, web
from tasks.data.reading.decompress import Damaged, Entry, read_chunks
from tasks.data.reading.encodings import detected
from tasks.data.reading.formats import LINES, MEMBERS, PLAIN, ROWS, separator
from tasks.data.reading.json_lines import json_lines, read_lines
from tasks.data.reading.rows import (
    BOM,
    Found,
    Record,
    checked,
    decode,
    judge,
    parse_json,
    show,
    whole,
)
from tasks.data.reading.settings import SourceSettings
from tasks.data.reading.sources import SourceFile, open_regular
from tasks.data.reading.tables import columns, table_rows

MAX_JSON_BYTES = 256 << 20
HEAD_BYTES = 1 << 20


def is_readable(entry: Entry, settings: SourceSettings) -> bool:
    """Whether an entry has rows; other members of an archive are ignored."""
    return settings.format is not None or entry.format in MEMBERS


def read_entry(entry: Entry, settings: SourceSettings) -> Iterator[Found]:
    """Every row of an entry, good or bad, in order.

    Raises BadInput where it cannot be read as a whole: damaged, or no such column.
    """
    suffix = f".{settings.format}" if settings.format else entry.format
    if suffix in PLAIN:
        return iter([_document(entry)])
    if suffix == LINES:
        return _lines(entry)
    if suffix == ".json":
        return _json(entry, settings)
    if suffix in (".csv", ".tsv"):
        return _csv(entry, settings, suffix)
    if suffix in (".html", ".htm"):
        return iter([web.html_document(entry)])
    if suffix in (".warc", ".wet"):
        return web.warc_records(entry)
    if suffix in (".parquet", ".arrow"):
        return table_rows(entry, settings, suffix)
    return json_lines(entry.text_chunks(), settings, entry.line)


def keys(file: SourceFile, settings: SourceSettings) -> list[str]:
    """The fields of a file's first row or of its header; none where rows have no fields.

    An archive is not opened for it. Raises BadInput when the file is damaged there.
    """
    suffix = f".{settings.format}" if settings.format else file.format
    with open_regular(file.path) as raw:
        entry = Entry(file.name, str(file.path), file.size, raw, True, encoding=settings.encoding)
        if suffix in (".parquet", ".arrow"):
            return columns(entry, suffix)
        if suffix in (".csv", ".tsv"):
            cells = _cells(entry, settings, suffix)
            try:
                return next(cells, [])
            except csv.Error as error:
                raise _misquoted(entry, cells.line_num, error) from error
        if suffix in ROWS:
            return _first_keys(entry.text_chunks())
    return []


def is_utf8(file: SourceFile) -> bool:
    """Whether the head of a file of text is UTF-8; files that say their encoding always are."""
    if file.format not in PLAIN + ROWS:
        return True
    return detected(_head(read_chunks(file.path))) is None


def _head(chunks: Iterable[bytes]) -> bytes:
    """The first MiB or so."""
    head = bytearray()
    for chunk in chunks:
        head += chunk
        if len(head) >= HEAD_BYTES:
            break
    return bytes(head)


def _first_keys(chunks: Iterable[bytes]) -> list[str]:
    """The keys of the first object of a list, or of lines; none where it is over a MiB."""
    text = _head(chunks).removeprefix(BOM).decode(errors="replace").lstrip()
    text = text.removeprefix("[").lstrip()
    try:
        row, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return []
    return list(row) if isinstance(row, dict) else []


def _document(entry: Entry) -> Record:
    content = whole(entry)
    if content is None:
        return Record(None, reason="too_large")
    return checked(None, decode(content.removeprefix(BOM)))


def _lines(entry: Entry) -> Iterator[Found]:
    """A text per line; blank lines are no rows."""
    for number, line in read_lines(entry.text_chunks(), entry.line):
        if line is None:
            yield Record(number, reason="line_too_long")
        elif line.removeprefix(BOM).strip():
            yield checked(number, decode(line.removeprefix(BOM).removesuffix(b"\r")))


def _json(entry: Entry, settings: SourceSettings) -> Iterator[Found]:
    """A list of objects, or lines of objects whatever the suffix says."""
    chunks = entry.text_chunks()
    first = next(chunks, b"")
    chunks = itertools.chain([first], chunks)
    if first.removeprefix(BOM).lstrip()[:1] == b"[":
        return _json_list(entry, chunks, settings)
    return json_lines(chunks, settings)


def _json_list(entry: Entry, chunks: Iterable[bytes], settings: SourceSettings) -> Iterator[Found]:
    content = bytearray()
    for chunk in chunks:
        content += chunk
        if len(content) > MAX_JSON_BYTES:
            limit = MAX_JSON_BYTES >> 20
            raise BadInput(f"{entry.shown}: a JSON list over {limit} MiB; write it as .jsonl")
    try:
        found = parse_json(decode(bytes(content.removeprefix(BOM))))
    except (ValueError, RecursionError) as error:
        why = f"{type(error).__name__} {error}".strip()
        raise Damaged(
            f"{entry.shown} is not valid JSON: {why}; mend it, or leave it out with "
            "`on_damaged: skip` in the source"
        ) from error
    return (judge(number, row, settings) for number, row in enumerate(found, 1))


def _csv(entry: Entry, settings: SourceSettings, suffix: str) -> Iterator[Found]:
    """Rows under a header line, or by the names given; the place is the line where a row ends."""
    reader = _cells(entry, settings, suffix)
    try:
        header = settings.header or next(reader, [])
        _check_header(entry, header, settings)
        for values in reader:
            if len(values) == len(header):
                yield judge(reader.line_num, dict(zip(header, values, strict=True)), settings)
            elif values:
                yield Record(reader.line_num, reason="wrong_field_count", sample=show(values))
    except csv.Error as error:
        raise _misquoted(entry, reader.line_num, error) from error


def _misquoted(entry: Entry, line: int, error: csv.Error) -> Damaged:
    return Damaged(
        f"{entry.shown}, line {line}: {error}; if its quotes are part of the text, "
        "say `quotes: false` in the source; `on_damaged: skip` leaves the file out"
    )


def _cells(entry: Entry, settings: SourceSettings, suffix: str) -> Any:
    """The reader of a table's lines, each a list of its cells."""
    lines = _csv_lines(entry)
    first = next(lines, "")
    csv.field_size_limit(rows.MAX_ROW_BYTES)
    return csv.reader(
        itertools.chain([first], lines),
        delimiter=separator(first, suffix, settings.header),
        strict=True,
        quoting=csv.QUOTE_MINIMAL if settings.quotes else csv.QUOTE_NONE,
    )


def _csv_lines(entry: Entry) -> Iterator[str]:
    """Lines with LF. A line over 64 MiB is an error: rows may go over lines."""
    for number, line in read_lines(entry.text_chunks()):
        if line is None:
            raise csv.Error(f"line {number} is longer than {rows.MAX_ROW_BYTES >> 20} MiB")
        yield decode(line.removeprefix(BOM) if number == 1 else line) + "\n"


def _check_header(entry: Entry, header: Sequence[str], settings: SourceSettings) -> None:
    if len(set(header)) != len(header):
        raise BadInput(f"{entry.shown}: a column is named twice: {', '.join(header)}")
    for name in settings.fields if header else ():
        if name not in header:
            raise BadInput(
                f"{entry.shown} has {settings.lacking(name, header)}; where its first line is a "
                "row already, name the columns by `header: [...]` in the source"
            )
