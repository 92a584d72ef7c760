"""Rows kept and rows rejected by a data stage, every one accounted for.

Rejects go to `rejects.parquet` with their reason; counts and a few samples, with personal data
masked, go into the facts for the report.
"""

from collections import Counter
from collections.abc import Sequence
from types import TracebackType

import pyarrow as pa

from cluster.artifact import Ledger
from cluster.store import Draft
from tasks.data.pii import mask
from tasks.data.text import TextWriter, parquet_writer

REJECT_SCHEMA = pa.schema(
    [pa.field(name, pa.string(), nullable=False) for name in ("id", "origin", "reason", "sample")]
)
REJECT_CHARS = 500
SAMPLE_CHARS = 300
SAMPLES_PER_REASON = 5
PENDING_REJECTS = 4096


class Sorter:
    """Splits a stage's rows; leaving the block sets the draft's rows, ledger and facts.

    with Sorter(draft) as rows:
        rows.keep(batch)
        rows.reject(id, origin, "too_short", text)
    """

    def __init__(self, draft: Draft):
        self.draft = draft
        self.reasons: Counter[str] = Counter()
        self.samples: dict[str, list[dict[str, str]]] = {}
        self._writer = TextWriter(draft.path)
        self._rejects = parquet_writer(draft.path / "rejects.parquet", REJECT_SCHEMA)
        self._pending: list[dict[str, str]] = []

    def __enter__(self) -> "Sorter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._writer.close()
        self._flush()
        self._rejects.close()
        if error is None:
            self._account()

    @property
    def rows_in(self) -> int:
        """Rows seen so far."""
        return self.rows_out + sum(self.reasons.values())

    @property
    def rows_out(self) -> int:
        """Rows kept so far."""
        return self._writer.rows

    def keep(self, batch: pa.RecordBatch) -> None:
        """Pass rows on."""
        self._writer.write(batch)

    def reject(self, id: str, origin: str, reason: str, text: str) -> None:
        """Put one row aside."""
        self.reasons[reason] += 1
        row = {"id": id, "origin": origin, "reason": reason, "sample": text[:REJECT_CHARS]}
        self._pending.append(row)
        samples = self.samples.setdefault(reason, [])
        if len(samples) < SAMPLES_PER_REASON:
            samples.append({"id": id, "origin": origin, "text": mask(text[:SAMPLE_CHARS])})
        if len(self._pending) >= PENDING_REJECTS:
            self._flush()

    def split(self, batch: pa.RecordBatch, reasons: Sequence[str | None]) -> None:
        """Keep the rows whose reason is None and reject the others with theirs."""
        self.keep(batch.filter(pa.array([r is None for r in reasons], pa.bool_())))
        for index, reason in enumerate(reasons):
            if reason is not None:
                id, origin, text = (batch[c][index].as_py() for c in ("id", "origin", "text"))
                self.reject(id, origin, reason, text)

    def _flush(self) -> None:
        self._rejects.write_table(pa.Table.from_pylist(self._pending, REJECT_SCHEMA))
        self._pending = []

    def _account(self) -> None:
        counts = dict(sorted(self.reasons.items()))
        self.draft.rows = self.rows_out
        balance = {"in": self.rows_in, "out": self.rows_out, "rejects": counts}
        self.draft.ledger = Ledger.model_validate(balance)
        self.draft.facts["reasons"] = counts
        self.draft.facts["samples"] = {r: self.samples[r] for r in counts}
        self.draft.metrics["rows_in"] = self.rows_in
        self.draft.metrics["rows_out"] = self.rows_out
