"""Text artifacts written again without some rows: the same files, without them.

What stages decided on the other rows stays as it was, among that which rows went as copies.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cluster.artifact import Artifact, DataFile
from cluster.manifest import Ledger
from cluster.store import Draft
from tasks.data.deduplication.phases import load, save
from tasks.data.deduplication.signatures import INDEX
from tasks.data.ledger import REJECT_SCHEMA
from tasks.data.reading.refusals import ERASED, UNKNOWN
from tasks.data.text import PATTERN, file_batches, parquet_writer
from tasks.forgetting.places import REJECTS

STAGES = ("read", "filter", "dedup", "redact", "grade")
NAMED = ("id", "a", "b", "document")
"""What facts call the row that they show a piece of."""


def is_text(artifact: Artifact) -> bool:
    """Whether it is text that is written again, and not made again."""
    kinds = ("text-", "rejects-", "index-")
    files = artifact.manifest.files
    return artifact.manifest.stage in STAGES and all(name.startswith(kinds) for name in files)


def without_rows(old: Artifact, ids: Collection[str], draft: Draft) -> None:
    """The text without these rows, be they kept or set aside. Those that `read` kept are now among
    the rows that it sets aside, as erased and without a sample.
    """
    wanted, read = pa.array(sorted(ids), pa.string()), old.manifest.stage == "read"
    gone, masks = defaultdict[str, list[pa.Table]](list), defaultdict[str, list[np.ndarray]](list)
    for file in old.files(PATTERN):
        table, mine = _rows(file, wanted)
        _write(draft.path / file.name, table.filter(pc.invert(mine)))
        gone[_block(file.name)].append(table.filter(mine))
        masks[_block(file.name)].append(mine.to_numpy(zero_copy_only=False))
    lost = Counter[str]()
    for file in old.files(REJECTS):
        table, mine = _rows(file, wanted)
        lost.update(table.filter(mine)["reason"].to_pylist())
        new = [_erased(gone[_block(file.name)])] if read else []
        _write(draft.path / file.name, pa.concat_tables([table.filter(pc.invert(mine)), *new]))
    for file in old.files(INDEX):
        kept = pa.array(~np.concatenate(masks[_block(file.name)]))
        save(draft.path / file.name, load(old.file(file.name)).filter(kept).combine_chunks())
    rows = pa.concat_tables([one for tables in gone.values() for one in tables])
    _account(old, draft, rows.num_rows, lost, read)
    draft.facts = _forgotten(draft.facts, set(ids))
    if read:
        draft.facts["sources"] = [_recounted(s, rows) for s in draft.facts["sources"]]


def _account(old: Artifact, draft: Draft, kept: int, lost: Counter[str], read: bool) -> None:
    """Ledger, counts and facts after so many kept rows, and those `lost` by the reason that they
    were set aside for, have gone.
    """
    about, ledger = old.manifest, old.manifest.ledger
    assert ledger is not None and about.rows is not None, f"{old.name} has no ledger"
    reasons = Counter(ledger.rejects)
    reasons.subtract(lost)
    taken = ledger.rows_in - lost.total() - (0 if read else kept)
    if read and kept:
        reasons[ERASED] += kept
    left = {reason: n for reason, n in sorted(reasons.items()) if n}
    draft.rows = about.rows - kept
    balance = {"in": taken, "out": ledger.rows_out - kept, "rejects": left}
    draft.ledger = Ledger.model_validate(balance)
    draft.metrics = about.metrics | {"rows_in": taken, "rows_out": ledger.rows_out - kept}
    draft.facts = about.facts | {"reasons": left}


def _forgotten(value: Any, ids: set[str]) -> Any:
    """Facts without the entries of lists that show a piece of one of these rows."""
    if isinstance(value, Mapping):
        return {key: _forgotten(inner, ids) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_forgotten(one, ids) for one in value if not _shows(one, ids)]
    return value


def _shows(value: Any, ids: set[str]) -> bool:
    return isinstance(value, Mapping) and any(value.get(name) in ids for name in NAMED)


def _recounted(source: Mapping[str, Any], rows: pa.Table) -> dict[str, Any]:
    """What `read` tells of a source, without these rows."""
    own = rows.filter(pc.equal(rows["source"], source["label"]))
    licenses = Counter(source["licenses"])
    licenses.subtract(license or UNKNOWN for license in own["license"].to_pylist())
    counts = {"rows": source["rows"] - len(own), "rejected": source["rejected"] + len(own)}
    return {**source, **counts, "licenses": {name: n for name, n in licenses.items() if n}}


def _rows(file: DataFile, wanted: pa.Array) -> tuple[pa.Table, pa.Array]:
    """All rows of a file, and which of them are the wanted ones."""
    table = pa.Table.from_batches(file_batches(file), pq.read_schema(file.sized()))
    return table.combine_chunks(), pc.is_in(table["id"].combine_chunks(), wanted)


def _erased(tables: list[pa.Table]) -> pa.Table:
    """Rows that were kept, as ones that are set aside."""
    rows = pa.concat_tables(tables)
    said = [pa.array([text] * len(rows), pa.string()) for text in (ERASED, "")]
    return pa.table([rows["id"], rows["origin"], *said], schema=REJECT_SCHEMA)


def _block(name: str) -> str:
    """The number of the block that a file is of."""
    return name.split(".")[0].split("-")[1]


def _write(path: Path, table: pa.Table) -> None:
    with parquet_writer(path, table.schema) as writer:
        writer.write_table(table)
