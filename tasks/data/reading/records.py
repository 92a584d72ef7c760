"""Rows of one source file, each either a text or the reason why it is none.

`.txt .md .rst .py` files are one document each; `.jsonl .ndjson .json .csv .tsv .parquet .arrow`
have one per row. Text is UTF-8; a byte order mark is dropped, CR LF becomes LF, all else is kept.
"""

import csv
import itertools
import json
import reprlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cluster.errors import BadInput
from tasks.data.reading.decompress import read_chunks
from tasks.data.reading.sources import PLAIN, SourceFile, SourceSettings, open_regular

MAX_ROW_BYTES = 64 << 20
MAX_JSON_BYTES = 512 << 20
# A Parquet dictionary can blow 500 KB up to 5 GB; nothing in the footer tells.
MAX_TABLE_RATIO = 1000
TABLE_FREE_BYTES = 1 << 30
TABLE_ROWS = 64
SAMPLE_CHARS = 500
BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Record:
    """One row: its place in the file (None: the whole file), and its text or a reason against it.

    `sample` is what a rejected row looked like; `keys` the fields of a row without a text.
    """

    place: int | None
    text: str = ""
    reason: str | None = None
    id: str | None = None
    sample: str = ""
    keys: tuple[str, ...] = ()


class DuplicateKey(ValueError):
    """A JSON object that names a key twice; which value counts would be a guess."""


def read_records(file: SourceFile, settings: SourceSettings) -> Iterator[Record]:
    """Every row of a file, good or bad.

    Raises BadInput where the file as a whole cannot be read: damaged, or no such column.
    """
    if file.format in PLAIN:
        return iter([_document(file)])
    if file.format == ".json":
        return _json(file, settings)
    if file.format in (".csv", ".tsv"):
        return _csv(file, settings)
    if file.format in (".parquet", ".arrow"):
        return _table(file, settings)
    return _json_lines(read_chunks(file.path), settings)


def read_lines(chunks: Iterable[bytes]) -> Iterator[tuple[int, bytes | None]]:
    """Numbered lines without their ends, from 1; None stands for one longer than 64 MiB."""
    pending, number, too_long = bytearray(), 1, False
    for chunk in itertools.chain(chunks, [b"\n"]):
        pending += chunk
        if b"\n" in chunk:
            *lines, rest = bytes(pending).split(b"\n")
            pending = bytearray(rest)
            for line in lines:
                yield number, None if too_long or len(line) > MAX_ROW_BYTES else line
                number, too_long = number + 1, False
        if len(pending) > MAX_ROW_BYTES:
            pending, too_long = bytearray(), True


def judge(place: int | None, row: Any, settings: SourceSettings) -> Record:
    """The record of one parsed row: its text, or why it has none."""
    if not isinstance(row, dict):
        return Record(place, reason="not_an_object", sample=_show(row))
    if settings.text not in row:
        keys = tuple(str(key) for key in row)
        return Record(place, reason="missing_text", sample=_show(row), keys=keys)
    value, name = row[settings.text], None
    if settings.id is not None:
        name = row.get(settings.id)
        if not isinstance(name, str | int) or name == "":
            return Record(place, reason="missing_id", sample=_show(row))
    if value is None:
        return Record(place, reason="null_text", sample=_show(row))
    if not isinstance(value, str):
        return Record(place, reason="text_not_string", sample=_show(row))
    return _checked(place, value, None if name is None else str(name))


def _checked(place: int | None, text: str, name: str | None = None) -> Record:
    text = text.replace("\r\n", "\n")
    if not text.isascii():
        for part in (text, name or ""):
            try:
                part.encode()
            except UnicodeEncodeError as error:
                # bytes that are not UTF-8 arrive as U+DC80 to U+DCFF ("surrogateescape")
                escaped = 0xDC80 <= ord(part[error.start]) <= 0xDCFF
                reason = "invalid_utf8" if escaped else "lone_surrogate"
                return Record(place, reason=reason, sample=_show(text))
    if "\0" in text:
        return Record(place, reason="nul_character", sample=_show(text))
    if not text or text.isspace():
        return Record(place, reason="empty_text")
    return Record(place, text, id=name)


def _document(file: SourceFile) -> Record:
    parts, size = [], 0
    for chunk in read_chunks(file.path):
        parts.append(chunk)
        size += len(chunk)
        if size > MAX_ROW_BYTES:
            return Record(None, reason="too_large", sample=_show(parts[0]))
    return _checked(None, _decode(b"".join(parts).removeprefix(BOM)))


def _json(file: SourceFile, settings: SourceSettings) -> Iterator[Record]:
    """A list of objects, or lines of objects whatever the suffix says."""
    chunks = read_chunks(file.path)
    first = next(chunks, b"")
    chunks = itertools.chain([first], chunks)
    if first.removeprefix(BOM).lstrip()[:1] == b"[":
        return _json_list(file, chunks, settings)
    return _json_lines(chunks, settings)


def _json_list(
    file: SourceFile, chunks: Iterable[bytes], settings: SourceSettings
) -> Iterator[Record]:
    content = bytearray()
    for chunk in chunks:
        content += chunk
        if len(content) > MAX_JSON_BYTES:
            limit = MAX_JSON_BYTES >> 20
            raise BadInput(f"{file.path}: a JSON list over {limit} MiB; write it as .jsonl")
    try:
        rows = _parse(_decode(bytes(content.removeprefix(BOM))))
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{file.path} is not valid JSON: {error}") from error
    return (judge(number, row, settings) for number, row in enumerate(rows, 1))


def _json_lines(chunks: Iterable[bytes], settings: SourceSettings) -> Iterator[Record]:
    """One object per line; blank lines are no rows."""
    for number, line in read_lines(chunks):
        if line is None:
            yield Record(number, reason="line_too_long")
        elif line.removeprefix(BOM).strip():
            yield _json_line(number, line.removeprefix(BOM), settings)


def _json_line(number: int, line: bytes, settings: SourceSettings) -> Record:
    try:
        return judge(number, _parse(line.decode()), settings)
    except UnicodeDecodeError:
        reason = "invalid_utf8"
    except DuplicateKey:
        reason = "duplicate_key"
    except RecursionError:
        reason = "nested_too_deep"
    except ValueError:
        reason = "invalid_json"
    return Record(number, reason=reason, sample=_show(line))


def _csv(file: SourceFile, settings: SourceSettings) -> Iterator[Record]:
    """Rows under a header line; the place is the line where a row ends."""
    lines = (_decode((line or b"") + b"\n") for _, line in read_lines(read_chunks(file.path)))
    header = next(lines, "").removeprefix("\ufeff")
    csv.field_size_limit(MAX_ROW_BYTES)
    reader = csv.DictReader(
        itertools.chain([header], lines),
        delimiter="\t" if file.format == ".tsv" else ",",
        strict=True,
    )
    try:
        for row in reader:
            yield judge(reader.line_num, row, settings)
    except csv.Error as error:
        raise BadInput(f"{file.path}, line {reader.line_num}: {error}") from error


def _table(file: SourceFile, settings: SourceSettings) -> Iterator[Record]:
    """Rows of a Parquet or Arrow file, from 1."""
    columns = [c for c in (settings.text, settings.id) if c is not None]
    number, logical = 0, 0
    try:
        for batch in _batches(file, columns):
            logical += batch.nbytes
            if logical > TABLE_FREE_BYTES and logical > MAX_TABLE_RATIO * file.size:
                raise BadInput(f"{file.path}: {file.size} bytes became more than {logical} bytes")
            values = [_values(batch.column(c)) for c in columns]
            for row in zip(*values, strict=True):
                number += 1
                yield judge(number, dict(zip(columns, row, strict=True)), settings)
    except (OSError, pa.ArrowException) as error:
        raise BadInput(f"{file.path} is damaged: {error} after {number} rows") from error


def _batches(file: SourceFile, columns: list[str]) -> Iterator[pa.RecordBatch]:
    with open_regular(file.path) as raw:
        if file.format == ".parquet":
            table = pq.ParquetFile(raw, page_checksum_verification=True)
            _check_columns(file, table.schema_arrow.names, columns)
            yield from table.iter_batches(TABLE_ROWS, columns=columns, use_threads=False)
            return
        reader = _open_arrow(raw)
        _check_columns(file, reader.schema.names, columns)
        for batch in _arrow_batches(reader):
            for start in range(0, batch.num_rows, TABLE_ROWS):
                yield batch.select(columns).slice(start, TABLE_ROWS)


def _arrow_batches(reader: Any) -> Iterable[pa.RecordBatch]:
    if isinstance(reader, pa.ipc.RecordBatchFileReader):
        return (reader.get_batch(i) for i in range(reader.num_record_batches))
    return iter(reader)


def _open_arrow(raw: Any) -> Any:
    try:
        return pa.ipc.open_file(raw)
    except pa.ArrowInvalid:  # not the file format: the stream format has no magic number
        raw.seek(0)
        return pa.ipc.open_stream(raw)


def _check_columns(file: SourceFile, found: list[str], wanted: list[str]) -> None:
    for name in wanted:
        if name not in found:
            raise BadInput(f"{file.path} has no column '{name}'; it has: {', '.join(found)}")


def _values(column: pa.Array) -> list[Any]:
    """Python values; strings by way of bytes, since Arrow does not check that they are UTF-8."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = column.view(pa.binary() if pa.types.is_string(column.type) else pa.large_binary())
        column.validate(full=True)
        return [None if v is None else _decode(v) for v in column.to_pylist()]
    return list(column.to_pylist())


def _decode(content: bytes) -> str:
    return content.decode(errors="surrogateescape")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise DuplicateKey
    return found


_parse = json.JSONDecoder(object_pairs_hook=_unique).decode
_brief = reprlib.Repr()  # repr() itself recurses without bound
_brief.maxstring = _brief.maxother = SAMPLE_CHARS


def _show(value: Any) -> str:
    """The beginning of a bad value in printable form, for the rejects file."""
    if isinstance(value, bytes):
        return value[:SAMPLE_CHARS].decode(errors="backslashreplace")
    text = value if isinstance(value, str) else _brief.repr(value)
    return text[:SAMPLE_CHARS].encode(errors="backslashreplace").decode()
