"""Reading JSON lines beside its peers: from the file to texts in memory, in one run.

    uv run --with 'datatrove[io]==0.9.0' --with orjson python benchmarks/reading.py FILE.jsonl[.zst]

The peers are datatrove's JsonlReader (orjson, a Python object a row) and Arrow's own reader, which
parses whole columns and, unlike the two others, fails at the first bad row. Ours checks each row
for what the other two let pass: repeated keys, NaN, lone surrogates, NUL. CPU seconds of this
process, least of three runs, after one that warms up; text rows and bytes of all sides must agree.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.json
from fairness import need_texts

from tasks.data.reading.decompress import Entry
from tasks.data.reading.records import read_entry
from tasks.data.reading.rows import Record
from tasks.data.reading.settings import SourceSettings
from tasks.data.reading.sources import open_regular

Read = Callable[[Path], tuple[int, int]]
RUNS = 3


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path)
    path = parser.parse_args().file
    headrace(path)
    sides: dict[str, Read] = {"headrace": headrace, "pyarrow.json": arrow}
    if reader := datatrove():
        sides["datatrove JsonlReader"] = reader
    results = {name: measured(read, path) for name, read in sides.items()}
    rows, size = results["headrace"][1]
    need_texts(["text"] if size else [], path)
    print(f"{rows} rows, {size / 1e6:.1f} MB of text, {path.stat().st_size / 1e6:.1f} MB on disk")
    for name, (seconds, found) in results.items():
        ratio = seconds / results["headrace"][0]
        same = "" if found == (rows, size) else f"; found {found}"
        print(f"{name:22} {size / 1e6 / seconds:8.1f} MB per CPU-second, ours {ratio:.1f}x{same}")


def measured(read: Read, path: Path) -> tuple[float, tuple[int, int]]:
    """The least CPU seconds of some runs, and rows and bytes of text."""
    seconds = []
    for _ in range(RUNS):
        start = time.process_time()
        found = read(path)
        seconds.append(time.process_time() - start)
    return min(seconds), found


def headrace(path: Path) -> tuple[int, int]:
    """Rows and bytes of text as `read` takes them in, bad rows left out."""
    rows = size = 0
    with open_regular(path) as file:
        entry = Entry(path.name, str(path), path.stat().st_size, file)
        for found in read_entry(entry, SourceSettings(path=str(path))):
            if isinstance(found, Record):
                good = found.reason is None
                rows, size = rows + good, size + good * len(found.text.encode())
            else:
                rows, size = rows + found.num_rows, size + text_bytes(found["text"])
    return rows, size


def arrow(path: Path) -> tuple[int, int]:
    """The same by Arrow's reader, which decompresses by the suffix."""
    blocks = pyarrow.json.ReadOptions(block_size=64 << 20)
    with pa.input_stream(path, compression="detect") as file:
        table = pyarrow.json.read_json(file, read_options=blocks)
    return table.num_rows, sum(text_bytes(chunk) for chunk in table["text"].chunks)


def text_bytes(texts: pa.Array) -> int:
    """UTF-8 bytes of an array of strings."""
    return int(pa.compute.sum(pa.compute.binary_length(texts)).as_py() or 0)


def datatrove() -> Read | None:
    """datatrove's reader; None when it is not installed."""
    try:
        from datatrove.pipeline.readers import JsonlReader
    except ImportError:
        return None

    def documents(path: Path) -> Iterator[str]:
        for document in JsonlReader(str(path.parent), glob_pattern=path.name).run():
            yield document.text

    def read(path: Path) -> tuple[int, int]:
        texts = list(documents(path))
        return len(texts), sum(len(text.encode()) for text in texts)

    return read


if __name__ == "__main__":
    main()
