"""Sources as they come: other encodings, old line ends, bytes for text, NaN, damage, file URLs."""

import gzip
import io
import json
import tarfile
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import BadInput
from tasks.data.reading.encodings import as_utf8
from tasks.data.reading.settings import SourceSettings
from tasks.data.text import read_table

GERMAN = (
    "Die Mühle dreht sich schon seit vielen Jahren am Fluß, und die Bäuerin grüßt den Müller.\n"
    "Später, wenn es kühl wird, hört man über den Wiesen nur noch das Rauschen des Wassers.\n"
)
RUSSIAN = "Мельница стоит у реки, и колесо её вращается уже много лет подряд без отдыха.\n"


def texts(artifact):
    return read_table(artifact)["text"].to_pylist()


def rejects(artifact):
    table = pq.read_table(artifact.file("rejects-00000.parquet"))
    return [(row["origin"], row["reason"]) for row in table.to_pylist()]


@pytest.mark.parametrize(
    "encoding,text",
    [("latin-1", GERMAN), ("utf-16", GERMAN), ("cp1251", RUSSIAN), ("utf-8", RUSSIAN)],
)
@pytest.mark.parametrize("named", ["by name", "auto"])
def test_text_of_another_encoding(tmp_path, read_path, encoding, text, named):
    row = json.dumps({"text": text.strip()}, ensure_ascii=False)
    files = {
        "a.txt": text,
        "b.jsonl": f"{row}\n{row}\n",
        "c.json": f"[{row}]",
        "d.csv": f'n,text\n1,"{text.strip()}"\n',
        "e.lines.gz": text,
    }
    for name, content in files.items():
        raw = content.encode(encoding)
        (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
        source = {"path": str(tmp_path / name), "encoding": "auto" if named == "auto" else encoding}
        found = read_path(source | {"format": "lines"} if ".lines" in name else source)
        lines = text.strip().split("\n") if ".lines" in name else [text.strip()]
        assert {line.strip() for line in texts(found)} == set(lines), name
        assert found.manifest.ledger.rejects == {}


def test_what_is_not_of_the_encoding_is_set_aside_by_row(tmp_path, read_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "good"}\n{"text": "b\x81d"}\n{"text": "fine"}\n')
    source = {"path": str(tmp_path / "a.jsonl"), "encoding": "cp1252"}
    artifact = read_path(source, max_bad_rate=0.5)
    assert texts(artifact) == ["good", "fine"]
    assert rejects(artifact) == [("a.jsonl:2", "invalid_utf8")]


def test_an_encoding_that_python_lacks_is_refused():
    for name in ("latin-one", "base64"):
        with pytest.raises(ValueError, match=rf"{name}.*such as cp1252, or auto"):
            SourceSettings(path="x", encoding=name)


@pytest.mark.parametrize("size", [1, 3, 1 << 20])
def test_chunks_may_be_cut_anywhere(size):
    for encoding in ("utf-16", "utf-8", "shift_jis"):
        text = "水車\r\n回る\r\n" * 3
        raw = text.encode(encoding)
        chunks = [raw[i : i + size] for i in range(0, len(raw), size)]
        assert b"".join(as_utf8(chunks, encoding)).decode() == text


def test_lines_that_end_in_cr_alone(tmp_path, read_path):
    row = json.dumps({"text": "a line"})
    (tmp_path / "a.jsonl").write_text(f"{row}\r{row}\r", newline="")
    (tmp_path / "b.csv").write_text("n,text\r1,a line\r2,a line\r", newline="")
    (tmp_path / "c.txt").write_text("a line\ra line", newline="")
    assert texts(read_path(tmp_path / "a.jsonl")) == ["a line"] * 2
    assert texts(read_path(tmp_path / "b.csv")) == ["a line"] * 2
    assert texts(read_path(tmp_path / "c.txt")) == ["a line\na line"]
    assert texts(read_path({"path": str(tmp_path / "c.txt"), "format": "lines"})) == ["a line"] * 2
    (tmp_path / "d.txt").write_text("a\rline\nof two", newline="")
    assert texts(read_path(tmp_path / "d.txt")) == ["a\rline\nof two"]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(3)])
def test_text_columns_stored_as_binary(tmp_path, read_path, kind):
    columns = {"text": [b"ab\xc3", b"abc", b"a\r\n"], "name": [b"r1r", b"r2r", b"r3r"]}
    table = pa.table({name: pa.array(values, kind) for name, values in columns.items()})
    pq.write_table(table, tmp_path / "a.parquet")
    source = {"path": str(tmp_path / "a.parquet"), "id": "name"}
    artifact = read_path(source, max_bad_rate=0.5)
    assert texts(artifact) == ["abc", "a\n"]
    assert read_table(artifact)["id"].to_pylist() == ["a.parquet/r2r", "a.parquet/r3r"]
    assert rejects(artifact) == [("a.parquet:1", "invalid_utf8")]


def test_a_number_that_is_none_matters_only_where_it_is_read(tmp_path, read_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "score": NaN, "m": {"n": Infinity}}\n')
    assert texts(read_path(path)) == ["a"]
    artifact = read_path({"path": str(path), "label": "m.n"}, {"path": __file__}, max_bad_rate=1.0)
    assert artifact.manifest.ledger.rejects == {"not_a_number": 1}
    pq.write_table(pa.table({"text": ["a"], "score": [float("nan")]}), tmp_path / "a.parquet")
    assert texts(read_path(tmp_path / "a.parquet")) == ["a"]


def packed(folder, rows=200):
    """Files by name, each of many rows, whole."""
    body = "".join(json.dumps({"text": f"row {i} {i * i % 977}"}) + "\n" for i in range(rows))
    tar, zipped = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w:gz") as archive:
        info = tarfile.TarInfo("inner.jsonl")
        info.size = len(body)
        archive.addfile(info, io.BytesIO(body.encode()))
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inner.jsonl", body)
    pq.write_table(pa.table({"text": body.split("\n")}), folder / "whole.parquet")
    return {
        "cut.jsonl.gz": gzip.compress(body.encode()),
        "cut.tgz": tar.getvalue(),
        "cut.zip": zipped.getvalue(),
        "cut.parquet": (folder / "whole.parquet").read_bytes(),
        "cut.json": b"[" + b",".join(body.encode().splitlines()) + b"]",
    }


@pytest.mark.parametrize("fault", ["cut", "flipped"])
@pytest.mark.parametrize("name", ["cut.jsonl.gz", "cut.tgz", "cut.zip", "cut.parquet", "cut.json"])
def test_a_damaged_file_fails_or_is_left_out_as_a_whole(tmp_path, read_path, name, fault):
    raw = bytearray(packed(tmp_path)[name])
    (tmp_path / "whole.parquet").unlink()
    half = len(raw) // 2
    raw[half] ^= 0 if fault == "cut" else 0x55
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / name).write_bytes(raw[:half] if fault == "cut" else raw)
    (folder / "good.jsonl").write_text('{"text": "good"}\n')
    if (fault, name) == ("flipped", "cut.json"):
        (folder / name).write_bytes(bytes(raw).replace(b"{", b"[", 1))
    with pytest.raises(BadInput, match="on_damaged: skip"):
        read_path(folder)
    artifact = read_path({"path": str(folder), "on_damaged": "skip"})
    assert texts(artifact) == ["good"]
    assert artifact.manifest.ledger.rejects == {"damaged_file": 1}
    assert rejects(artifact) == [(name, "damaged_file")]


def test_a_whole_archive_is_read_when_damage_would_be_skipped(tmp_path, read_path):
    (tmp_path / "data").mkdir()
    for name, raw in packed(tmp_path, 20).items():
        (tmp_path / "data" / name).write_bytes(raw)
    artifact = read_path({"path": str(tmp_path / "data"), "on_damaged": "skip"})
    assert artifact.manifest.rows == 5 * 20
    assert artifact.manifest.ledger.rejects == {"empty_text": 1}  # Parquet's last, empty row


@pytest.mark.parametrize("name", ["in.jsonl", "*.jsonl", ""])
def test_a_file_url_names_rows_as_a_plain_path_does(tmp_path, read_path, name):
    found = []
    for place in ("first", "second place"):
        folder = tmp_path / place / "data"
        folder.mkdir(parents=True)
        (folder / "in.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n')
        for path in (f"{folder}/{name}", f"file://{folder}/{name}", f"{folder.as_uri()}/{name}"):
            artifact = read_path(path)
            found.append((read_table(artifact)["id"].to_pylist(), artifact.manifest.fingerprint))
    assert all(one == found[0] for one in found)
