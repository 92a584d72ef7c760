"""The compiled pass and the row path must find the same rows, byte for byte."""

import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.data.reading.json_lines import json_lines, line_blocks, read_lines
from tasks.data.reading.rows import Record
from tasks.data.reading.sources import SourceSettings

FIELDS = SourceSettings(path="x", id="id", license_field="meta.license", label="label")
LINES = [
    b'{"text": "plain"}',
    b' \t{ "text" : "spaced" , "n" : [ ] , "o" : { } }\r',
    b'{"text": "\\u00e9\\ud83d\\ude00\\"\\\\\\/\\b\\f\\n\\r\\t"}',
    '{"text": "naïve 机器 😀", "ключ": 1}'.encode(),
    b'{"text": "a\\r\\nb\\r\\r\\n\\n\\r"}',
    b'{"text": "\\r\\n"}',
    b'{"text": " \\u00a0\\u3000 "}',
    '{"text": "\u00a0\u3000"}'.encode(),
    '{"text": "かな"}'.encode(),
    b'{"text": "\\ud83d"}',
    b'{"text": "\\ude00\\ud83d"}',
    b'{"text": "\\ud83d\\u0041"}',
    b'{"other": "\\ud83d", "text": "kept"}',
    b'{"text": "a\\u0000b"}',
    b'{"text": "a\x00b"}',
    b'{"text": "a\tb"}',
    b'{"text": "\\x"}',
    b'{"text": "\\u12g4"}',
    b'{"text": "caf\xe9"}',
    b'{"text": "\xc0\x80"}',
    b'{"text": "\xed\xa0\x80"}',
    b'{"text": "\xf4\x90\x80\x80"}',
    b'{"text": "\xe6\x9c"}',
    b'{"text": "a", "text": "b"}',
    b'{"text": "a", "n": {"k": 1, "k": 2}}',
    b'{"text": "a", "n": {"k": 1}, "m": {"k": 2}}',
    b'{"text": "a", "n": 1, "\\u006e": 2}',
    b'{"\\u0074ext": "escaped key"}',
    b'{"text": null}',
    b'{"text": 3}',
    b'{"text": {"text": "inner"}}',
    b'{"n": {"text": "inner"}}',
    b'{"text": "a", "n": NaN}',
    b'{"text": "a", "n": -Infinity}',
    b'{"text": "a", "n": [1, -0, 0.5, 1e9, -1.25E-3, true, false, null, "s", {}]}',
    b'{"text": "a", "n": 01}',
    b'{"text": "a", "n": 1.}',
    b'{"text": "a", "n": .5}',
    b'{"text": "a", "n": +1}',
    b'{"text": "a", "n": 1e}',
    b'{"text": "a", "n": -}',
    b'{"text": "a", "n": ' + b"9" * 5000 + b"}",
    b'{"text": "a", "n": tru}',
    b'{"text": "a",}',
    b'{"text": "a" "n": 1}',
    b'{"text": "a", "n": [1,]}',
    b'{"text": "a", "n": [1 2]}',
    b'{"text": "a", "n": [1}}',
    b'{"text": "a"}}',
    b'{"text": "a"} x',
    b'{"text": "a"',
    b'{"text": "a',
    b'{"text',
    b"{",
    b"{}",
    b"",
    b" \t ",
    b"\x0b",
    b'\xef\xbb\xbf{"text": "bom"}',
    b'["text"]',
    b'"text"',
    b'{"text": "a", "n": ' + b"[" * 70 + b"]" * 70 + b"}",
    b"[" * 5000,
    b'{"id": "r1", "text": "a", "label": 3, "meta": {"license": ["MIT", "BSD"]}}',
    b'{"id": 7, "text": "a", "label": true, "meta": {"license": null}}',
    b'{"id": "", "text": "a"}',
    b'{"id": true, "text": "a"}',
    b'{"id": "r\\u0000", "text": "a"}',
    b'{"id": "\\ud800", "text": "a"}',
    b'{"id": "r2", "text": "a", "label": [1]}',
    b'{"id": "r3", "text": "a", "meta": {"license": 3}}',
    b'{"id": "r4", "text": "a", "meta": {"license": "MIT"}, "meta.license": "BSD"}',
    b'{"id": "r5", "text": "a", "label": 1.50, "meta": "none"}',
]


def found(content, settings, native):
    rows = []
    for piece in json_lines([content], settings, native):
        rows += piece.to_pylist() if isinstance(piece, pa.RecordBatch) else [summary(piece)]
    order = [row for row in rows if "reason" not in row]
    assert order == sorted(order, key=lambda row: row["place"])
    return sorted(rows, key=lambda row: row["place"])


def summary(record):
    if record.reason is not None:
        return {"place": record.place, "reason": record.reason, "sample": record.sample}
    names = ("place", "text", "id", "license", "label")
    return {name: getattr(record, name) for name in names}


@pytest.mark.parametrize("fields", [SourceSettings(path="x"), FIELDS], ids=["text", "all"])
def test_both_ways_find_the_same_in_every_hard_line(fields):
    content = b"\n".join(LINES)
    by_row = found(content, fields, native=False)
    assert found(content, fields, native=True) == by_row
    assert len(by_row) == sum(bool(line.strip()) for line in LINES)


def test_plain_lines_stay_in_the_compiled_pass():
    content = b'{"id": "a", "text": "x\\r\\ny", "meta": {"license": "MIT"}}\n' * 3
    (batch,) = json_lines([content], FIELDS, native=True)
    assert batch.to_pylist()[2] == {
        "place": 3,
        "text": "x\ny",
        "id": "a",
        "license": "MIT",
        "label": None,
    }


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.integers(0, len(LINES) - 1), max_size=6), st.integers(0, 40), st.binary(max_size=3)
)
def test_both_ways_find_the_same_after_a_random_edit(which, at, junk):
    content = bytearray(b"\n".join(LINES[i] for i in which))
    content[at : at + 1] = junk
    fast, slow = (found(bytes(content), FIELDS, native) for native in (True, False))
    assert fast == slow


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(st.text(), st.dictionaries(st.text(), VALUES, max_size=4), st.booleans())
def test_any_object_gives_the_same_both_ways(text, more, ascii_only):
    try:
        line = json.dumps(more | {"text": text}, ensure_ascii=ascii_only).encode()
    except UnicodeEncodeError:
        return
    fast, slow = (found(line, SourceSettings(path="x"), native) for native in (True, False))
    assert fast == slow


@given(st.lists(st.binary(max_size=5)), st.integers(1, 7), st.integers(1, 9))
def test_lines_do_not_depend_on_how_the_bytes_arrive(parts, size, block):
    content = b"\n".join(parts)
    chunks = [content[i : i + size] for i in range(0, len(content), size)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tasks.data.reading.json_lines.BLOCK_BYTES", block)
        got = [line for line in read_lines(chunks) if line[1]]
    assert got == [(n, line) for n, line in enumerate(content.split(b"\n"), 1) if line]


def test_blocks_are_whole_lines(monkeypatch):
    monkeypatch.setattr("tasks.data.reading.json_lines.BLOCK_BYTES", 4)
    monkeypatch.setattr("tasks.data.reading.rows.MAX_ROW_BYTES", 8)
    chunks = [b"ab\ncd", b"ef\n", b"0123456789", b"0123", b"\nxy\n"]
    assert list(line_blocks(chunks)) == [
        (1, b"ab\n"),
        (2, b"cdef\n"),
        (3, None),
        (4, b"xy\n"),
    ]


def test_records_and_batches_come_in_order():
    kana = '{"text": "かな"}\n'.encode()
    plain = b'{"text": "a"}\n'
    pieces = list(json_lines([plain * 2 + kana + plain], SourceSettings(path="x"), native=True))
    assert [isinstance(piece, Record) for piece in pieces] == [False, True, False]
