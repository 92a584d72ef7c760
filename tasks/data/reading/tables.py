"""Rows of Parquet and Arrow files: columns in passes of Arrow, rows these suspect one by one."""

from collections.abc import Iterable, Iterator
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cluster.errors import BadInput
from tasks.data.reading import rows
from tasks.data.reading.decompress import Entry, damaged
from tasks.data.reading.rows import FOUND, Found, decode, judge
from tasks.data.reading.settings import SourceSettings

# A Parquet dictionary can blow 500 KB up to 5 GB; nothing in the footer tells.
MAX_RATIO = 1000
RATIO_FREE_BYTES = 1 << 30
READ_ROWS = 64
BATCH_BYTES = 4 << 20
BATCH_ROWS = 8192
# A member of an archive has no random access, which these formats need: it is held in memory.
MAX_MEMBER_BYTES = 256 << 20


def table_rows(entry: Entry, settings: SourceSettings, suffix: str) -> Iterator[Found]:
    """Rows of a Parquet or Arrow file, from 1. Raises BadInput when it is damaged or too large."""
    number = 1
    try:
        for batch in _large(_batches(entry, settings, suffix)):
            if all(_is_text(column.type) for column in batch.columns):
                yield from _judged(number, batch, settings)
            else:
                yield from _row_by_row(np.arange(batch.num_rows), number, batch, settings)
            number += batch.num_rows
    except (OSError, pa.ArrowException) as error:
        raise damaged(entry.shown, error, f"{number - 1} rows") from error


def columns(entry: Entry, suffix: str) -> list[str]:
    """The names of its columns. Raises BadInput when it is damaged."""
    try:
        if suffix == ".parquet":
            return list(pq.read_schema(entry.file).names)
        return list(next(iter(_arrow(entry.file)), pa.record_batch({})).schema.names)
    except (OSError, pa.ArrowException) as error:
        raise damaged(entry.shown, error, "0 rows") from error


def _judged(first: int, batch: pa.RecordBatch, settings: SourceSettings) -> Iterator[Found]:
    """The rows of a batch of text columns, numbered from `first`."""
    suspect = np.zeros(batch.num_rows, bool)
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        suspect |= _suspect(column, allow_null=name not in (settings.text, settings.id))
    places = pa.array(np.arange(first, first + batch.num_rows))
    text = batch[settings.text].cast(pa.large_string())
    others = [
        batch[name].cast(pa.string()) if name else pa.nulls(batch.num_rows, pa.string())
        for name in (settings.id, settings.license_field, settings.label)
    ]
    found = pa.RecordBatch.from_arrays([places, text, *others], schema=FOUND)
    good = found.filter(pa.array(~suspect)) if suspect.any() else found
    odd = list(_row_by_row(np.flatnonzero(suspect), first, batch, settings))
    yield from rows.in_order(good, odd)


def _row_by_row(
    which: Any, first: int, batch: pa.RecordBatch, settings: SourceSettings
) -> Iterator[rows.Record]:
    columns = [_values(column.take(pa.array(which))) for column in batch.columns]
    names = batch.schema.names
    for number, values in zip(which.tolist(), zip(*columns, strict=True), strict=True):
        yield judge(first + number, dict(zip(names, values, strict=True)), settings)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_binary(kind: pa.DataType) -> bool:
    tests = ("binary", "large_binary", "binary_view", "fixed_size_binary")
    return any(getattr(pa.types, f"is_{name}")(kind) for name in tests)


def _suspect(column: pa.Array, allow_null: bool) -> Any:
    """Which values the row path must look at, `[rows]`: white space alone, NUL, CR LF, nulls, and
    all where one is no UTF-8; it may find nothing.
    """
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return np.ones(len(column), bool)
    blank = pc.utf8_is_space(column)
    odd = pc.or_(blank, pc.match_substring_regex(column, "^$|\\x00|\\r\\n"))
    return odd.fill_null(not allow_null).to_numpy(zero_copy_only=False)


def _large(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches put together to about 4 MiB or 8192 rows."""
    pending, size, count = list[pa.RecordBatch](), 0, 0
    for batch in batches:
        pending.append(batch)
        size, count = size + batch.nbytes, count + batch.num_rows
        if size >= BATCH_BYTES or count >= BATCH_ROWS:
            yield pa.concat_batches(pending)
            pending, size, count = [], 0, 0
    if pending:
        yield pa.concat_batches(pending)


def _batches(entry: Entry, settings: SourceSettings, suffix: str) -> Iterator[pa.RecordBatch]:
    """Small batches of the wanted fields, each a column of its name; never much at a time."""
    logical, raw = 0, _seekable(entry)
    source = _parquet(entry, raw, settings) if suffix == ".parquet" else _arrow(raw)
    for batch in source:
        logical += batch.nbytes
        if logical > RATIO_FREE_BYTES and logical > MAX_RATIO * entry.size:
            raise BadInput(f"{entry.shown}: {entry.size} bytes became more than {logical} bytes")
        columns = [_column(entry, batch, name, settings) for name in settings.fields]
        yield pa.RecordBatch.from_arrays(columns, names=list(settings.fields))


def _seekable(entry: Entry) -> IO[bytes] | pa.BufferReader:
    if entry.seekable:
        return entry.file
    if entry.size > MAX_MEMBER_BYTES:
        raise BadInput(
            f"{entry.shown} has {entry.size} bytes; a table of more than "
            f"{MAX_MEMBER_BYTES >> 20} MiB cannot be read inside an archive, unpack it"
        )
    return pa.BufferReader(entry.file.read())


def _parquet(
    entry: Entry, raw: IO[bytes] | pa.BufferReader, settings: SourceSettings
) -> Iterator[pa.RecordBatch]:
    table = pq.ParquetFile(raw, page_checksum_verification=True)
    names = table.schema_arrow.names
    heads = [n if n in names else n.split(".")[0] for n in settings.fields]
    for head in heads:
        if head not in names:
            raise BadInput(f"{entry.shown} has {settings.lacking(head, names)}")
    columns = list(dict.fromkeys(heads))
    for group in range(table.num_row_groups):
        yield from table.iter_batches(READ_ROWS, [group], columns=columns, use_threads=False)


def _arrow(raw: Any) -> Iterator[pa.RecordBatch]:
    try:
        reader = pa.ipc.open_file(raw)
        batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
    except pa.ArrowInvalid:  # not the file format: the stream format has no magic number
        raw.seek(0)
        batches = iter(pa.ipc.open_stream(raw))
    for batch in batches:
        batch.validate()
        for start in range(0, batch.num_rows, READ_ROWS):
            yield batch.slice(start, READ_ROWS)


def _column(entry: Entry, batch: pa.RecordBatch, name: str, settings: SourceSettings) -> pa.Array:
    """A column, or a field inside one; dictionaries decoded, offsets of texts checked."""
    found = batch.schema.names
    first, *parts = [name] if name in found else name.split(".")
    if first not in found:
        raise BadInput(f"{entry.shown} has {settings.lacking(name, found)}")
    column = batch.column(first)
    for part in parts:
        if not pa.types.is_struct(column.type) or column.type.get_field_index(part) < 0:
            raise BadInput(f"{entry.shown} has no column '{name}'; {first} is {column.type}")
        column = pc.struct_field(column, part)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    if _is_binary(column.type):  # as some writers store text; whether it is any is checked as ever
        column = column.cast(pa.large_binary()).view(pa.large_string())
    if _is_text(column.type):
        _bytes_of(column).validate(full=True)
    return column


def _bytes_of(column: pa.Array) -> pa.Array:
    """A text column as bytes: Arrow does not check that texts are UTF-8."""
    return column.view(pa.binary() if pa.types.is_string(column.type) else pa.large_binary())


def _values(column: pa.Array) -> list[Any]:
    """Python values; strings by way of bytes."""
    if _is_text(column.type):
        return [None if v is None else decode(v) for v in _bytes_of(column).to_pylist()]
    return list(column.to_pylist())
