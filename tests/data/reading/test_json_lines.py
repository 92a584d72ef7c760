"""Lines of JSON: the text of each good one, the reason against each of the others."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.data.reading.json_lines import json_lines, line_blocks, read_lines
from tasks.data.reading.rows import Record
from tasks.data.reading.settings import SourceSettings

PLAIN = SourceSettings(path="x")
FIELDS = SourceSettings(path="x", id="id", license_field="meta.license", label="label")
TEXTS = [
    (b'{"text": "plain"}', "plain"),
    (b' \t{ "text" : "spaced" , "n" : [ ] , "o" : { } }\r', "spaced"),
    (b'{"text": "\\u00e9\\ud83d\\ude00\\"\\\\\\/\\b\\f\\n\\r\\t"}', 'é😀"\\/\x08\x0c\n\r\t'),
    ('{"text": "naïve 机器 😀", "ключ": 1}'.encode(), "naïve 机器 😀"),
    (b'{"text": "a\\r\\nb\\r\\r\\n\\n\\r"}', "a\nb\r\n\n\r"),
    ('{"text": "かな"}'.encode(), "かな"),
    (b'{"other": "\\ud83d", "text": "kept"}', "kept"),
    (b'{"text": "a", "n": {"k": 1}, "m": {"k": 2}}', "a"),
    (b'{"\\u0074ext": "escaped key"}', "escaped key"),
    (b'{"text": "a", "n": [1, -0, 0.5, 1e9, -1.25E-3, true, false, null, "s", {}]}', "a"),
    (b'\xef\xbb\xbf{"text": "bom"}', "bom"),
    (b'{"text": "a", "n": NaN, "m": -Infinity}', "a"),
    (b'{"text": "a", "n": ' + b"[" * 70 + b"]" * 70 + b"}", "a"),
]
REASONS = {
    "empty_text": [
        b'{"text": "\\r\\n"}',
        b'{"text": " \\u00a0\\u3000 "}',
        '{"text": "\u00a0\u3000"}'.encode(),
    ],
    "lone_surrogate": [
        b'{"text": "\\ud83d"}',
        b'{"text": "\\ude00\\ud83d"}',
        b'{"text": "\\ud83d\\u0041"}',
    ],
    "nul_character": [
        b'{"text": "a\\u0000b"}',
    ],
    "invalid_json": [
        b'{"text": "a\x00b"}',
        b'{"text": "a\tb"}',
        b'{"text": "\\x"}',
        b'{"text": "\\u12g4"}',
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
    ],
    "invalid_utf8": [
        b'{"text": "caf\xe9"}',
        b'{"text": "\xc0\x80"}',
        b'{"text": "\xed\xa0\x80"}',
        b'{"text": "\xf4\x90\x80\x80"}',
        b'{"text": "\xe6\x9c"}',
    ],
    "duplicate_key": [
        b'{"text": "a", "text": "b"}',
        b'{"text": "a", "n": {"k": 1, "k": 2}}',
        b'{"text": "a", "n": 1, "\\u006e": 2}',
    ],
    "null_text": [
        b'{"text": null}',
    ],
    "text_not_string": [
        b'{"text": 3}',
        b'{"text": {"text": "inner"}}',
    ],
    "missing_text": [
        b'{"n": {"text": "inner"}}',
        b"{}",
    ],
    "not_a_number": [
        b'{"text": NaN}',
        b'{"text": 1e999}',
    ],
    "not_an_object": [
        b'["text"]',
        b'"text"',
    ],
    "nested_too_deep": [
        b"[" * 5000,
    ],
}
FIELD_VALUES = [
    (
        b'{"id": "r1", "text": "a", "label": 3, "meta": {"license": ["MIT", "BSD"]}}',
        ("r1", "MIT, BSD", "3"),
    ),
    (b'{"id": 7, "text": "a", "label": true, "meta": {"license": null}}', ("7", None, "true")),
    (b'{"id": "r5", "text": "a", "label": 1.50, "meta": "none"}', ("r5", None, "1.5")),
    (
        b'{"id": "r4", "text": "a", "meta": {"license": "MIT"}, "meta.license": "BSD"}',
        ("r4", "BSD", None),
    ),
    (b'{"id": "", "text": "a"}', "missing_id"),
    (b'{"id": true, "text": "a"}', "missing_id"),
    (b'{"id": "r\\u0000", "text": "a"}', "nul_character"),
    (b'{"id": "\\ud800", "text": "a"}', "lone_surrogate"),
    (b'{"id": "r2", "text": "a", "label": [1]}', "label_not_scalar"),
    (b'{"id": "r3", "text": "a", "meta": {"license": 3}}', "license_not_string"),
]


def found(content, settings=PLAIN):
    """The rows as dictionaries, in order; rejected ones have a `reason`."""
    rows = []
    for piece in json_lines([content], settings):
        rows += piece.to_pylist() if isinstance(piece, pa.RecordBatch) else [vars(piece)]
    good = [row["place"] for row in rows if "reason" not in row]
    assert good == sorted(good)
    return sorted(rows, key=lambda row: row["place"])


def test_each_line_gives_its_text_or_its_reason():
    expected = TEXTS + [(line, reason) for reason, lines in REASONS.items() for line in lines]
    blank = [b"", b" \t ", b"\x0b"]
    content = b"\n".join([line for line, _ in expected] + blank)
    got = [row.get("reason") or row["text"] for row in found(content)]
    assert got == [outcome for _, outcome in expected]


@pytest.mark.parametrize("line,expected", FIELD_VALUES)
def test_fields_beside_the_text(line, expected):
    (row,) = found(line, FIELDS)
    assert (row.get("reason") or (row["id"], row["license"], row["label"])) == expected


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


def test_good_rows_of_a_block_are_one_batch():
    plain, bad = b'{"text": "a"}\n', b"{}\n"
    pieces = list(json_lines([plain * 2 + bad + plain], PLAIN))
    assert [isinstance(piece, Record) for piece in pieces] == [True, False]
    assert [row["place"] for row in found(plain * 2 + bad + plain)] == [1, 2, 3, 4]
