"""A large file in parts gives the rows, ids and places of the file as a whole."""

import json

import pytest

from cluster.stage import build
from tasks.data.reading import parts as room
from tasks.data.reading.parts import parts
from tasks.data.reading.settings import SourceSettings
from tasks.data.reading.sources import resolve
from tasks.data.reading.stage import ReadSettings, read
from tasks.data.text import read_table


@pytest.fixture
def large(tmp_path, monkeypatch):
    """40 rows, one of them bad, one blank line, no newline at the end."""
    monkeypatch.setattr(room, "CHUNK_BYTES", 7)
    lines = [json.dumps({"text": f"row {n} " + "x" * (n * 7 % 50)}) for n in range(40)]
    lines[17], lines[30] = "{not json", ""
    path = tmp_path / "large.jsonl"
    path.write_text("\n".join(lines))
    return path


def cut(path, **fields):
    settings = SourceSettings(path=str(path), **fields)
    (source,) = resolve((settings,))
    return parts(source.files[0], settings)


@pytest.mark.parametrize("size", [1, 60, 100, 333])
def test_parts_are_whole_lines_with_their_numbers(large, monkeypatch, size):
    monkeypatch.setattr(room, "PART_BYTES", size)
    content, found = large.read_bytes(), cut(large)
    assert len(found) > 3
    assert b"".join(content[p.start : p.end] for p in found) == content
    for part in found:
        assert content[: part.start].count(b"\n") + 1 == part.line
        assert part.start == 0 or content[part.start - 1 : part.start] == b"\n"


def test_rows_and_places_are_those_of_the_whole_file(large, store, monkeypatch):
    def rows():
        settings = ReadSettings.model_validate(
            {"sources": [{"path": str(large)}], "max_bad_rate": 0.5}
        )
        made = build(read, store, settings=settings, force=True)
        return read_table(made).to_pylist(), made.manifest.ledger, made.manifest.facts

    whole = rows()
    monkeypatch.setattr(room, "PART_BYTES", 300)
    assert len(cut(large)) > 2
    assert rows() == whole
    assert whole[2]["samples"]["invalid_json"][0]["origin"] == "large.jsonl:18"


def test_what_stays_whole(large, tmp_path, monkeypatch):
    monkeypatch.setattr(room, "PART_BYTES", 100)
    assert cut(large, id="name") == [None]
    assert cut(large, format="txt") == [None]
    assert len(cut(large, format="lines")) > 3
    (tmp_path / "a.jsonl.gz").write_bytes(b"x" * 500)
    assert cut(tmp_path / "a.jsonl.gz") == [None]
    monkeypatch.setattr(room, "PART_BYTES", 10_000)
    assert cut(large) == [None]
