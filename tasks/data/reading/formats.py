"""File formats by suffix: what can be read, and how a name tells.

Light on purpose: sources are found, and a cached run is planned, from here.
"""

import csv
import re
from collections.abc import Sequence
from pathlib import PurePosixPath

COMPRESSIONS = (".gz", ".zst", ".bz2")
PLAIN = (".txt", ".md", ".rst", ".py")
WEB = (".html", ".htm", ".warc", ".wet")
ROWS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv")
TABLES = (".parquet", ".arrow")
MEMBERS = PLAIN + WEB + ROWS + TABLES
ARCHIVES = (".tar", ".tgz", ".tzst", ".zip")
LINES = ".lines"
SUPPORTED = (
    f"{', '.join(PLAIN + WEB + ROWS)} (plain or {', '.join(COMPRESSIONS)}), {', '.join(TABLES)}, "
    f"and {', '.join(ARCHIVES)} of these; `format:` in the source reads any other suffix"
)


def data_suffix(name: str) -> str:
    """The suffix below compression, in lower case: `a.JSONL.gz` -> `.jsonl`."""
    path = PurePosixPath(name.lower())
    return path.with_suffix("").suffix if path.suffix in COMPRESSIONS else path.suffix


def compression(name: str) -> str:
    """`.gz`, `.zst`, `.bz2` or nothing; `.tgz` and `.tzst` are short for the first two."""
    suffix = PurePosixPath(name.lower()).suffix
    return {".tgz": ".gz", ".tzst": ".zst"}.get(suffix, suffix if suffix in COMPRESSIONS else "")


def separator(text: str, suffix: str = "", header: Sequence[str] | None = None) -> str:
    """What parts the columns of a table: a tab in `.tsv`; else what makes as many of the first line
    as are named, or most. Further lines are not asked: commas are common in texts.
    """
    line = re.split(r"[\r\n]", text, maxsplit=1)[0]
    if suffix == ".tsv" and "\t" in line:
        return "\t"
    made = {mark: len(next(csv.reader([line], delimiter=mark), [])) for mark in ",;\t"}
    fitting = [mark for mark in made if header and made[mark] == len(header)]
    return fitting[0] if fitting else max(made, key=lambda mark: made[mark])


def is_archive(name: str) -> bool:
    """Whether a file holds other files."""
    return data_suffix(name) in ARCHIVES
