"""JSON lines, in blocks of whole lines: large ones by a native pass, what it leaves row by row."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from tasks.data.reading import rows
from tasks.data.reading.rows import (
    BOM,
    FOUND,
    BadField,
    DuplicateKey,
    Found,
    NotANumber,
    Record,
    id_of,
    judge,
    label_of,
    license_of,
    parse_json,
    show,
)
from tasks.data.reading.sources import SourceSettings

BLOCK_BYTES = 4 << 20


def line_blocks(chunks: Iterable[bytes], number: int = 1) -> Iterator[tuple[int, bytes | None]]:
    """Blocks of about 4 MiB of whole lines, each with LF, and the number of their first line, from
    `number` on. None stands for one line longer than 64 MiB.
    """
    pending, too_long = bytearray(), False
    for chunk in chunks:
        if too_long:
            _, end, chunk = chunk.partition(b"\n")
            if not end:
                continue
            yield number, None
            number, too_long = number + 1, False
        pending += chunk
        if len(pending) >= BLOCK_BYTES and (cut := pending.rfind(b"\n") + 1):
            yield number, bytes(pending[:cut])
            number += pending.count(b"\n", 0, cut)
            del pending[:cut]
        if len(pending) > rows.MAX_ROW_BYTES and b"\n" not in pending:
            pending, too_long = bytearray(), True
    if too_long:
        yield number, None
    elif pending:
        yield number, bytes(pending) + b"\n" * (not pending.endswith(b"\n"))


def read_lines(chunks: Iterable[bytes], number: int = 1) -> Iterator[tuple[int, bytes | None]]:
    """Numbered lines without their ends; None stands for one longer than 64 MiB."""
    for first, block in line_blocks(chunks, number):
        if block is None:
            yield first, None
        else:
            for number, line in enumerate(block[:-1].split(b"\n"), first):
                yield number, None if len(line) > rows.MAX_ROW_BYTES else line


def json_lines(
    chunks: Iterable[bytes], settings: SourceSettings, native: bool = False, number: int = 1
) -> Iterator[Found]:
    """One object per line; blank lines are no rows. `native` takes the compiled pass, `number` is
    that of the first line.
    """
    for first, block in line_blocks(chunks, number):
        if block is None:
            yield Record(first, reason="line_too_long")
        elif native and "." not in settings.text:
            yield from _block(first, block, settings)
        else:
            lines = enumerate(block[:-1].split(b"\n"), first)
            yield from filter(None, (_record(number, line, settings) for number, line in lines))


def _record(number: int, line: bytes, settings: SourceSettings) -> Record | None:
    """The record of one line, None for a blank one."""
    line = line.removeprefix(BOM)
    if len(line) > rows.MAX_ROW_BYTES:
        return Record(number, reason="line_too_long")
    if not line.strip():
        return None
    try:
        return judge(number, parse_json(line.decode()), settings)
    except UnicodeDecodeError:
        reason = "invalid_utf8"
    except DuplicateKey:
        reason = "duplicate_key"
    except NotANumber:
        reason = "not_a_number"
    except RecursionError:
        reason = "nested_too_deep"
    except ValueError:
        reason = "invalid_json"
    return Record(number, reason=reason, sample=show(line))


def _block(first: int, block: bytes, settings: SourceSettings) -> Iterator[Found]:
    """The lines of a block: good ones as one batch, in order with those that took the row path."""
    from tasks.data.kernels.buffers import text_array
    from tasks.data.reading.json_kernel import GOOD, UNSURE, scan_lines

    names, bounds, heads = _wanted(settings)
    data = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    status = np.empty(len(ends), np.uint8)
    texts, offsets = np.empty(len(data), np.uint8), np.empty(len(ends) + 1, np.int64)
    spans = np.empty((len(ends) + 1, 2 * len(heads)), np.int64)
    good = scan_lines(data, ends, names, bounds, len(heads), status, texts, offsets, spans)
    starts, lines = np.concatenate(([0], ends[:-1] + 1)), np.flatnonzero(status == GOOD)
    plain = (ends - starts)[lines] <= rows.MAX_ROW_BYTES
    columns = {
        name: _column(block, spans[:good, 2 * at : 2 * at + 2], field, read, plain)
        for name, field, read, at in _others(settings, heads)
    }
    text = text_array(texts[: offsets[good]].copy(), offsets[: good + 1])
    batch = _batch(first + lines, text, columns).filter(pa.array(plain))
    status[lines[~plain]] = UNSURE
    odd = (
        _record(first + int(n), block[starts[n] : ends[n]], settings)
        for n in np.flatnonzero(status == UNSURE)
    )
    yield from rows.in_order(batch, [record for record in odd if record is not None])


def _wanted(settings: SourceSettings) -> tuple[Any, Any, list[str]]:
    """Keys to look for, packed as bytes and bounds, and those of them that are fields.

    Of `meta.license` the kernel finds `meta`; a key that is really called `meta.license` comes
    before, so a line that has it is left to the row path.
    """
    heads = list(dict.fromkeys(name.split(".")[0] for name in settings.fields))
    dotted = [name for name in settings.fields if "." in name]
    packed = [name.encode(errors="surrogatepass") for name in heads + dotted]
    bounds = np.cumsum([0, *map(len, packed)], dtype=np.int64)
    return np.frombuffer(b"".join(packed) + b"\0", np.uint8), bounds, heads


def _others(
    settings: SourceSettings, heads: list[str]
) -> Iterator[tuple[str, str, Callable[[Any], str | None], int]]:
    """Column, field, reader and the place of the key, for the fields beside the text."""
    wanted = (
        ("id", settings.id, id_of),
        ("license", settings.license_field, license_of),
        ("label", settings.label, label_of),
    )
    for name, field, read in wanted:
        if field is not None:
            yield name, field, read, heads.index(field.split(".")[0])


def _column(
    block: bytes,
    spans: Any,
    field: str,
    read: Callable[[Any], str | None],
    plain: Any,
) -> list[str | None]:
    """The values of one field; `plain` becomes False where one needs the row path's judgement."""
    head, values = field.split(".")[0], list[str | None]()
    for number, (start, end) in enumerate(spans.tolist()):
        value: str | None = None
        try:
            parsed = parse_json(block[start:end].decode()) if end else rows.MISSING
            row = {} if parsed is rows.MISSING else {head: parsed}
            value = read(rows.field(row, field))
            if value and (not value.isascii() or "\0" in value):
                value.encode()
                plain[number] &= "\0" not in value
        except (BadField, ValueError, RecursionError):
            plain[number], value = False, None
        values.append(value)
    return values


def _batch(places: Any, text: pa.Array, columns: dict[str, list[str | None]]) -> pa.RecordBatch:
    arrays = [pa.array(places, pa.int64()), text]
    for name in FOUND.names[2:]:
        found = columns.get(name)
        arrays.append(pa.nulls(len(text), pa.string()) if found is None else pa.array(found))
    casts = [a.cast(f.type) for a, f in zip(arrays, FOUND, strict=True)]
    return pa.RecordBatch.from_arrays(casts, schema=FOUND)
