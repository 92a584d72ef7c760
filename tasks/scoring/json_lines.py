"""JSON lines as every scoring command reads them, plain or gzipped."""

import gzip
import json
from pathlib import Path
from typing import Any

from cluster.errors import BadInput


def read_json_lines(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """The objects of a file with the numbers of their lines; blank lines are none.

    Raises BadInput naming file and line.
    """
    found = []
    for number, line in enumerate(_text(path).split("\n"), 1):
        if line.strip():
            try:
                row = json.loads(line)
            except ValueError as error:
                raise BadInput(f"{path}, line {number} is not JSON: {error}") from error
            if not isinstance(row, dict):
                raise BadInput(f"{path}, line {number} is not a JSON object")
            found.append((number, row))
    return found


def _text(path: Path) -> str:
    try:
        content = path.read_bytes()
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
        return content.removeprefix(b"\xef\xbb\xbf").decode()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read as UTF-8 text: {error}") from error
