"""JSON lines as scoring reads them, plain or gzipped, and writes them."""

import gzip
import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cluster.errors import BadInput
from cluster.files import write_atomically


def read_json_lines(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """The objects of a file with the numbers of their lines; blank lines are none.

    Raises BadInput naming file and line.
    """
    found = []
    for number, line in enumerate(_text(path).split("\n"), 1):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise BadInput(f"{path}, line {number} is not JSON: {error}") from error
            if not isinstance(row, dict):
                raise BadInput(f"{path}, line {number} is not a JSON object")
            found.append((number, row))
    return found


def write_json_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write one object a line, in ASCII: half a surrogate pair, which JSON can hold, stays one."""
    write_atomically(path, "".join(json.dumps(row) + "\n" for row in rows))


def _text(path: Path) -> str:
    try:
        content = path.read_bytes()
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
        return content.removeprefix(b"\xef\xbb\xbf").decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read as UTF-8 text: {error}") from error
