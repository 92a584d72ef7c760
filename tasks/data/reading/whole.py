"""A small source as one table in memory: evaluation sets, labelled rows, reference texts."""

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tasks.data.ledger import Account, Splitter
from tasks.data.reading.intake import blocks, read_block
from tasks.data.reading.settings import SourceSettings
from tasks.data.reading.sources import resolve


def read_source(settings: SourceSettings) -> tuple[pa.Table, Account]:
    """The rows of a source with the columns of a text artifact, and the account of the others.

    Raises BadInput where stage `read` does, for damaged files and missing fields.
    """
    (source,) = resolve((settings,))
    account = Account()
    with tempfile.TemporaryDirectory() as folder:
        for number, block in enumerate(blocks(source, ())):
            with Splitter(Path(folder), number) as rows:
                read_block(block, rows)
            account.add(rows.account)
        tables = [pq.read_table(path) for path in sorted(Path(folder).glob("text-*.parquet"))]
    return pa.concat_tables(tables), account
