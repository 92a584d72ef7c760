"""Rows kept and rows rejected by a data stage, every one accounted for.

Kept rows go to `text-*.parquet`, rejects to `rejects-*.parquet` with their reason; counts and a few
samples of both, with personal data masked, go into the account for the report.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pydantic import BaseModel

from cluster.manifest import Ledger
from cluster.store import Draft
from tasks.data.privacy.pii import mask
from tasks.data.text import TextWriter, parquet_writer

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetWriter

REJECT_SCHEMA = pa.schema(
    [pa.field(name, pa.string(), nullable=False) for name in ("id", "origin", "reason", "sample")]
)
# Of a stage that removes copies: the id of the document that stays for it.
COPY_SCHEMA = REJECT_SCHEMA.append(pa.field("copy_of", pa.string()))
REJECT_CHARS = 500
SAMPLE_CHARS = 300
SAMPLES = 5
PENDING_REJECTS = 4096
Sample = dict[str, str]


class Account(BaseModel):
    """What became of a block's rows. Accounts of blocks add up to that of the stage.

    `counts` are a stage's own sums, such as redactions by kind; `notes` its own rows of facts.
    """

    rows_out: int = 0
    reasons: Counter[str] = Counter()
    samples: dict[str, list[Sample]] = {}
    kept: list[Sample] = []
    counts: Counter[str] = Counter()
    notes: list[dict[str, Any]] = []

    @property
    def rows_in(self) -> int:
        """Rows seen."""
        return self.rows_out + self.reasons.total()

    def add(self, other: "Account") -> None:
        """Take in the account of the next block."""
        self.rows_out += other.rows_out
        self.reasons.update(other.reasons)
        self.counts.update(other.counts)
        self.notes += other.notes
        self.kept = (self.kept + other.kept)[:SAMPLES]
        for reason, samples in other.samples.items():
            self.samples[reason] = (self.samples.get(reason, []) + samples)[:SAMPLES]

    def close(self, draft: Draft) -> None:
        """Set the draft's rows and ledger, the facts `reasons` (how many rows each rejects),
        `samples` (of these, by reason) and `kept` (samples), the metrics `rows_in`, `rows_out`.
        """
        reasons = dict(sorted(self.reasons.items()))
        draft.rows = self.rows_out
        balance = {"in": self.rows_in, "out": self.rows_out, "rejects": reasons}
        draft.ledger = Ledger.model_validate(balance)
        draft.facts["reasons"] = reasons
        draft.facts["samples"] = {reason: self.samples[reason] for reason in reasons}
        draft.facts["kept"] = self.kept
        draft.metrics["rows_in"] = self.rows_in
        draft.metrics["rows_out"] = self.rows_out


class Splitter:
    """Splits the rows of one block into kept and rejected, in files named after its number.

    with Splitter(folder, number) as rows:
        rows.keep(batch)
        rows.reject(id, origin, "too_short", text)
    rows.account
    """

    def __init__(self, folder: Path, number: int = 0):
        self.account = Account()
        self._writer = TextWriter(folder, f"text-{number:05d}")
        self._path = folder / f"rejects-{number:05d}.parquet"
        self._schema = REJECT_SCHEMA
        self._rejects: ParquetWriter | None = None
        self._pending: list[dict[str, str | None]] = []

    def __enter__(self) -> "Splitter":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._writer.close()
            self._flush().close()
            self.account.rows_out = self._writer.rows

    def keep(self, batch: pa.RecordBatch) -> None:
        """Pass rows on."""
        self._writer.write(batch)
        for row in range(min(batch.num_rows, SAMPLES - len(self.account.kept))):
            id, origin, text = (batch[c][row].as_py() for c in ("id", "origin", "text"))
            self.account.kept.append(_sample(id, origin, text))

    def reject(
        self, id: str, origin: str, reason: str, text: str, copy_of: str | None = None
    ) -> None:
        """Put one row aside."""
        self.account.reasons[reason] += 1
        row = {"id": id, "origin": origin, "reason": reason, "sample": text[:REJECT_CHARS]}
        self._pending.append(row | {"copy_of": copy_of})
        samples = self.account.samples.setdefault(reason, [])
        if len(samples) < SAMPLES:
            samples.append(_sample(id, origin, text))
        if len(self._pending) >= PENDING_REJECTS:
            self._flush()

    def split(
        self,
        batch: pa.RecordBatch,
        reasons: Sequence[str | None],
        copies: Mapping[int, str] | None = None,
    ) -> None:
        """Keep the rows whose reason is None and reject the others with theirs.

        `copies` has by row the id of the document that a reject is a copy of, where it is one.
        """
        self._schema = REJECT_SCHEMA if copies is None else COPY_SCHEMA
        self.keep(batch.filter(pa.array([r is None for r in reasons], pa.bool_())))
        for index, reason in enumerate(reasons):
            if reason is not None:
                id, origin, text = (batch[c][index].as_py() for c in ("id", "origin", "text"))
                self.reject(id, origin, reason, text, (copies or {}).get(index))

    def _flush(self) -> "ParquetWriter":
        self._rejects = self._rejects or parquet_writer(self._path, self._schema)
        self._rejects.write_table(pa.Table.from_pylist(self._pending, self._schema))
        self._pending = []
        return self._rejects


def _sample(id: str, origin: str, text: str) -> Sample:
    return {"id": id, "origin": origin, "text": mask(text[:SAMPLE_CHARS])}
