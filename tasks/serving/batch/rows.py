"""The rows of a file to be answered: what of each is asked, or why it cannot be.

A bad row of JSON lines is put aside with its reason, and the others are answered. A table (.csv,
.tsv) is read whole or, where it is damaged, refused whole: quotes that do not match join rows.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.data.reading.decompress import read_chunks
from tasks.data.reading.formats import data_suffix
from tasks.data.reading.json_lines import read_lines
from tasks.data.reading.rows import BOM, DuplicateKey, parse_json, show
from tasks.data.row_files import TABLES, read_row_file
from tasks.serving.batch.settings import FIELDS

Asked = str | list[dict[str, Any]]


@dataclass(frozen=True)
class Row:
    """One row: the number of its line, its fields, and what is asked, a text or messages."""

    number: int
    fields: dict[str, Any]
    asked: Asked


@dataclass(frozen=True)
class Refusal:
    """A row that is not answered, with the reason and, in `detail`, what to look at."""

    number: int
    reason: str
    detail: str
    shown: str


def read_rows(path: Path, field: str | None) -> Iterator[Row | Refusal]:
    """All rows in order; blank lines are none. Raises BadInput for a file that cannot be read."""
    if data_suffix(path.name) in TABLES:
        for number, fields in read_row_file(path):
            yield _asked(number, fields, field)
        return
    for number, line in read_lines(read_chunks(path)):
        if line is None:
            yield Refusal(number, "line_too_long", "longer than 64 MiB", "")
        elif line.removeprefix(BOM).strip():
            yield _read(number, line.removeprefix(BOM), field)


def _read(number: int, line: bytes, field: str | None) -> Row | Refusal:
    try:
        fields = parse_json(line.decode())
        json.dumps(fields, allow_nan=False)  # as it is to be written again
    except UnicodeDecodeError as error:
        return Refusal(number, "invalid_utf8", str(error), show(line))
    except DuplicateKey as error:
        return Refusal(number, "duplicate_key", str(error), show(line))
    except RecursionError:
        return Refusal(number, "nested_too_deep", "", show(line))
    except ValueError as error:
        return Refusal(number, "invalid_json", str(error), show(line))
    if not isinstance(fields, dict):
        return Refusal(number, "not_an_object", "a row is a JSON object", show(fields))
    return _asked(number, fields, field)


def _asked(number: int, fields: dict[str, Any], field: str | None) -> Row | Refusal:
    names = FIELDS if field is None else (field,)
    name = next((name for name in names if fields.get(name) is not None), None)
    if name is None:
        return Refusal(number, "missing_field", f"no {' or '.join(names)}", show(fields))
    asked = fields[name]
    if isinstance(asked, str) or (isinstance(asked, list) and all_messages(asked)):
        return Row(number, fields, asked)
    detail = f"{name} is {json.dumps(asked)[:80]}; expected a text or a list of messages"
    return Refusal(number, "neither_text_nor_messages", detail, show(fields))


def all_messages(asked: list[Any]) -> bool:
    """Whether these are turns of a conversation."""
    return bool(asked) and all(isinstance(one, dict) and "role" in one for one in asked)
