"""Text artifacts: Parquet files `text-00000-00000.parquet`, ... in row order, with page checksums.

Each file is a block: about 32 MiB of text, the unit that one worker takes at a time.

Columns: `id` (unique), `text`, `source` (label), `origin` (file below the source's root, and line
or row), `license` and `label` (the class a source gives its rows; both nullable).
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cluster.artifact import Artifact, DataFile
from cluster.errors import BadInput

TEXT_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("text", pa.large_string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("origin", pa.string(), nullable=False),
        pa.field("license", pa.string()),
        pa.field("label", pa.string()),
    ]
)
PATTERN = "text-*.parquet"
BATCH_ROWS = 512
GROUP_BYTES = 16 << 20
# What one worker takes at a time: large enough for a native pass, small enough for its memory.
BLOCK_BYTES = 32 << 20


class TextWriter:
    """Writes `<stem>-*.parquet` in a folder: row groups of 16 MiB, files of 32 MiB of text."""

    def __init__(self, folder: Path, stem: str = "text-00000"):
        self.folder = folder
        self.stem = stem
        self.rows = 0
        self._files = 0
        self._file_bytes = 0
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> "TextWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Append rows that have the columns of `TEXT_SCHEMA` in any order, but for `label`."""
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        if "label" not in table.column_names:
            table = table.append_column("label", pa.nulls(table.num_rows, pa.string()))
        table = table.select(TEXT_SCHEMA.names).cast(TEXT_SCHEMA)
        self.rows += table.num_rows
        self._pending.append(table)
        self._pending_bytes += table.nbytes
        if self._pending_bytes >= GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        """Write what is pending; there is always at least one file."""
        if self._pending or not self._files:
            self._flush()
        self._close_file()

    def _flush(self) -> None:
        table = pa.concat_tables([TEXT_SCHEMA.empty_table(), *self._pending])
        if self._writer is None:
            path = self.folder / f"{self.stem}-{self._files:05d}.parquet"
            self._writer = parquet_writer(path, TEXT_SCHEMA)
            self._files += 1
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._file_bytes += self._pending_bytes
        self._pending, self._pending_bytes = [], 0
        if self._file_bytes >= BLOCK_BYTES:
            self._close_file()

    def _close_file(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer, self._file_bytes = None, 0


def parquet_writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """A Parquet writer with page checksums, which the format leaves off by default."""
    return pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        write_page_checksum=True,
        use_dictionary=["source", "license", "label"] if "source" in schema.names else False,
        write_statistics=False,
    )


def read_batches(artifact: Artifact, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of a text artifact in order, at most 512 at a time.

    Raises BadInput when a file is missing or changed, or one is there that the manifest does not
    name, or all of them do not have the rows that it says.
    """
    rows = 0
    for file in artifact.files(PATTERN):
        for batch in file_batches(file, columns):
            rows += batch.num_rows
            yield batch
    check_rows(artifact, rows)


def check_rows(text: Artifact, rows: int) -> None:
    """Raise BadInput unless these are as many rows as a text artifact has."""
    if text.manifest.rows not in (None, rows):
        raise BadInput(
            f"{text.name} has {text.manifest.rows} rows, and {rows} were read; run "
            f"`headrace verify {text.name}`, then "
            f"`headrace run RECIPE --rebuild {text.manifest.stage}`"
        )


def file_batches(
    file: DataFile | Path, columns: list[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of one file of a text artifact, every byte compared with the manifest first; or of
    a file that is still in the making. Raises BadInput when it is damaged.
    """
    path = file.verified() if isinstance(file, DataFile) else file
    with named_damage(path):
        reader = pq.ParquetFile(path, page_checksum_verification=path is file)
        for group in range(reader.num_row_groups):  # one at a time bounds the memory
            yield from reader.iter_batches(
                BATCH_ROWS, row_groups=[group], columns=columns, use_threads=False
            )


@contextlib.contextmanager
def named_damage(path: Path) -> Iterator[None]:
    """Raise BadInput, which names the file and its stage, where Parquet cannot be read."""
    try:
        yield
    except (OSError, pa.ArrowInvalid) as error:
        stage, name = path.parts[-3], path.parent.name
        raise BadInput(
            f"{path} is damaged: {error}; run `headrace verify {stage}/{name}`, then "
            f"`headrace run RECIPE --rebuild {stage}`"
        ) from error


def read_table(artifact: Artifact, columns: list[str] | None = None) -> pa.Table:
    """All rows of a text artifact in memory."""
    names = columns or TEXT_SCHEMA.names
    schema = pa.schema([TEXT_SCHEMA.field(n) for n in names])
    batches = [b.select(names) for b in read_batches(artifact, columns)]
    return pa.Table.from_batches([b.cast(schema) for b in batches], schema)
