"""What becomes of one row: a text with its fields, or the reason why it is none.

Text is UTF-8; CR LF becomes LF, all else is kept. Fast readers yield whole batches of good rows
(`FOUND`) instead of records; the rules of `judge` hold for them too.
"""

import json
import math
import reprlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from tasks.data.reading.decompress import Entry
from tasks.data.reading.settings import SourceSettings

MAX_ROW_BYTES = 64 << 20
SAMPLE_CHARS = 500
BOM = b"\xef\xbb\xbf"
# Good rows of one file. `place` is their line or row, null where the file is one document.
FOUND = pa.schema(
    [
        pa.field("place", pa.int64()),
        pa.field("text", pa.large_string(), nullable=False),
        pa.field("id", pa.string()),
        pa.field("license", pa.string()),
        pa.field("label", pa.string()),
    ]
)


@dataclass(frozen=True)
class Record:
    """One row: its place in the file (None: the whole file), and its text or a reason against it.

    `sample` is what a rejected row looked like; `keys` the fields of a row without a text.
    """

    place: int | None
    text: str = ""
    id: str | None = None
    license: str | None = None
    label: str | None = None
    reason: str | None = None
    sample: str = ""
    keys: tuple[str, ...] = ()


Found: TypeAlias = Record | pa.RecordBatch
MISSING: Final = object()


class BadField(ValueError):
    """A field that cannot be used; the message is the reason."""


class DuplicateKey(ValueError):
    """A JSON object that names a key twice; which value counts would be a guess."""


def judge(place: int | None, row: Any, settings: SourceSettings) -> Record:
    """The record of one parsed row: its text and fields, or why it has none."""
    if not isinstance(row, dict):
        return Record(place, reason="not_an_object", sample=show(row))
    value = field(row, settings.text)
    if value is MISSING:
        keys = tuple(str(key) for key in row)
        return Record(place, reason="missing_text", sample=show(row), keys=keys)
    if any(_no_number(field(row, name)) for name in settings.fields):
        return Record(place, reason="not_a_number", sample=show(row))
    try:
        name = id_of(field(row, settings.id)) if settings.id else None
        license = license_of(field(row, settings.license_field)) if settings.license_field else None
        label = label_of(field(row, settings.label)) if settings.label else None
    except BadField as error:
        return Record(place, reason=str(error), sample=show(row))
    if value is None:
        return Record(place, reason="null_text", sample=show(row))
    if not isinstance(value, str):
        return Record(place, reason="text_not_string", sample=show(row))
    return checked(place, value, name, license, label)


def checked(
    place: int | None,
    text: str,
    name: str | None = None,
    license: str | None = None,
    label: str | None = None,
) -> Record:
    """The record of a text and its fields, unless a character or emptiness speaks against it."""
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    for part in (text, name, license, label):
        if part and not part.isascii():
            try:
                part.encode()
            except UnicodeEncodeError as error:
                # bytes that are not UTF-8 arrive as U+DC80 to U+DCFF ("surrogateescape")
                escaped = 0xDC80 <= ord(part[error.start]) <= 0xDCFF
                reason = "invalid_utf8" if escaped else "lone_surrogate"
                return Record(place, reason=reason, sample=show(text))
    if any(part and "\0" in part for part in (text, name, license, label)):
        return Record(place, reason="nul_character", sample=show(text))
    if not text or text.isspace():
        return Record(place, reason="empty_text")
    return Record(place, text, name, license, label)


def field(row: dict[str, Any], name: str) -> Any:
    """The value under a name, or along its dotted parts; MISSING if there is none."""
    if name in row or "." not in name:
        return row.get(name, MISSING)
    value: Any = row
    for part in name.split("."):
        value = value.get(part, MISSING) if isinstance(value, dict) else MISSING
    return value


def id_of(value: Any) -> str:
    """A row's own name: a string or whole number. Raises BadField."""
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise BadField("missing_id")
    return str(value)


def license_of(value: Any) -> str | None:
    """A row's own license; a list of names is joined with commas. Raises BadField."""
    if value is MISSING or value is None or value == "" or value == []:
        return None
    names = value if isinstance(value, list) else [value]
    if not all(isinstance(name, str) for name in names):
        raise BadField("license_not_string")
    return ", ".join(names)


def label_of(value: Any) -> str | None:
    """A row's class as a string: a number or truth value as JSON writes it. Raises BadField."""
    if value is MISSING or value is None or isinstance(value, str):
        return value if isinstance(value, str) else None
    if not isinstance(value, bool | int | float):
        raise BadField("label_not_scalar")
    return json.dumps(value)


def in_order(good: pa.RecordBatch, others: Sequence[Record]) -> Iterator[Found]:
    """Good rows and records, by place; both are sorted already. Records with a reason go to another
    file, so the batch is not cut for them.
    """
    start, places = 0, good["place"].to_numpy()
    for record in others:
        if record.reason is None:
            stop = int(np.searchsorted(places, record.place or 0))
            if stop > start:
                yield good.slice(start, stop - start)
            start = stop
        yield record
    if start < good.num_rows:
        yield good.slice(start)


def found_batch(records: Sequence[Record]) -> pa.RecordBatch:
    """Records of good rows as a batch."""
    columns = [[getattr(r, name) for r in records] for name in FOUND.names]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, FOUND, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=FOUND)


def decode(content: bytes) -> str:
    """UTF-8 text; other bytes become surrogates, which `checked` finds."""
    return content.decode(errors="surrogateescape")


def parse_json(text: str) -> Any:
    """A JSON value. Raises ValueError, as for a key given twice; RecursionError."""
    return _parse(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise DuplicateKey
    return found


def _no_number(value: Any) -> bool:
    """Whether it is `NaN` or `Infinity`, which are no JSON; they matter where they are read."""
    return isinstance(value, float) and not math.isfinite(value)


_parse = json.JSONDecoder(object_pairs_hook=_unique).decode
_brief = reprlib.Repr()  # repr() itself recurses without bound
_brief.maxstring = _brief.maxother = SAMPLE_CHARS


def show(value: Any) -> str:
    """The beginning of a bad value in printable form, for the rejects file."""
    if isinstance(value, bytes):
        return value[:SAMPLE_CHARS].decode(errors="backslashreplace")
    text = value if isinstance(value, str) else _brief.repr(value)
    return text[:SAMPLE_CHARS].encode(errors="backslashreplace").decode()


def whole(entry: Entry) -> bytes | None:
    """The content of an entry, None if it is more than 64 MiB."""
    content = bytearray()
    for chunk in entry.text_chunks():
        content += chunk
        if len(content) > MAX_ROW_BYTES:
            return None
    return bytes(content)
