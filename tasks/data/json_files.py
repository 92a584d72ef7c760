"""Files of one JSON object a line, as tuning and scoring read and write them."""

import gzip
import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cluster.errors import BadInput
from cluster.files import write_atomically
from tasks.data.reading.formats import compression

GZIP = b"\x1f\x8b"


def read_json_lines(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """The objects of a file, plain or compressed, with the numbers of their lines; blank lines are
    none. Raises BadInput naming file and line.
    """
    found = []
    for number, line in enumerate(_text(path).split("\n"), 1):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise BadInput(f"{path}, line {number} is not JSON: {error}") from error
            if not isinstance(row, dict):
                raise BadInput(f"{path}, line {number} is not a JSON object: {row!r:.60}")
            found.append((number, row))
    return found


def write_json_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write one object a line, in ASCII: half a surrogate pair, which JSON can hold, stays one."""
    write_atomically(path, "".join(json.dumps(row) + "\n" for row in rows))


def _text(path: Path) -> str:
    """A plain file may also be a pipe, such as the shell's `<(...)`."""
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
