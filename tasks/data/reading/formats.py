"""File formats by suffix: what can be read, and how a name tells.

Light on purpose: sources are found, and a cached run is planned, from here.
"""

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


def is_archive(name: str) -> bool:
    """Whether a file holds other files."""
    return data_suffix(name) in ARCHIVES
