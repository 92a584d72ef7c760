import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import BadInput
from tasks.data.reading.rows import Record
from tasks.data.reading.settings import SourceSettings
from tasks.data.reading.tables import _judged, _row_by_row

FIELDS = SourceSettings(path="x", id="id", label="label")
HARD = [
    b"",
    b" \n",
    b"a\r\nb",
    b"a\0b",
    b"caf\xe9",
    "naïve".encode(),
    "\u3000".encode(),
    b"x",
    b"\xe6\x9c",
]


def summary(pieces):
    rows = []
    for piece in pieces:
        if isinstance(piece, Record):
            rows.append({n: getattr(piece, n) for n in ("place", "text", "id", "label", "reason")})
        else:
            rows += [{"reason": None} | row for row in piece.drop_columns("license").to_pylist()]
    return sorted(rows, key=lambda row: row["place"])


def column(values):
    return pa.array(values, pa.binary()).view(pa.string())


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(*[st.none() | st.sampled_from(HARD) | st.binary(max_size=6)] * 3), min_size=1
    )
)
def test_both_ways_find_the_same_rows(cells):
    columns = [column(values) for values in zip(*cells, strict=True)]
    batch = pa.RecordBatch.from_arrays(columns, names=["text", "id", "label"])
    fast = summary(_judged(1, batch, FIELDS))
    assert fast == summary(_row_by_row(np.arange(len(cells)), 1, batch, FIELDS))
    assert len(fast) == len(cells)


def test_a_dictionary_bomb_is_refused_before_it_fills_the_memory(tmp_path, read_path, monkeypatch):
    monkeypatch.setattr("tasks.data.reading.tables.RATIO_FREE_BYTES", 8 << 20)
    cells = pa.DictionaryArray.from_arrays(pa.array([0] * 5000, pa.int32()), ["x" * 500_000])
    table = pa.table({"text": cells})
    pq.write_table(table, tmp_path / "a.parquet", compression="zstd")
    assert (tmp_path / "a.parquet").stat().st_size < 20_000
    with pytest.raises(BadInput, match=r"a\.parquet: \d+ bytes became more than \d+ bytes"):
        read_path(tmp_path / "a.parquet")
