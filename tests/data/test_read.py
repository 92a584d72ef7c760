import gzip
import json
import os
import sysconfig
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from cluster.errors import BadInput
from cluster.stage import specify
from tasks.data.read import ReadSettings, read
from tasks.data.reading.intake import Intake
from tasks.data.reading.licenses import corpus_licenses
from tasks.data.reading.sources import SourceSettings, python_files, resolve
from tasks.data.text import read_table


def rows(count, **more):
    return [{"id": f"r{i}", "text": f"text number {i}", **more} for i in range(count)]


def lines(objects):
    return "".join(json.dumps(o) + "\n" for o in objects).encode()


def texts(artifact):
    return read_table(artifact)["text"].to_pylist()


def rejects(artifact):
    table = pq.read_table(artifact.file("rejects-00000.parquet"))
    return [(r["origin"], r["reason"]) for r in table.to_pylist()]


def fingerprint(*paths, **more):
    sources = tuple({"path": str(p)} | more for p in paths)
    return specify(read, "test", {}, {"settings": ReadSettings(sources=sources)}).fingerprint


PARQUET = pa.table({"text": [r["text"] for r in rows(5)], "n": range(5)})
WAYS = {
    "a.jsonl": lines(rows(5)),
    "a.ndjson": lines(rows(5)),
    "a.jsonl.gz": gzip.compress(lines(rows(5))),
    "a.jsonl.zst": zstandard.compress(lines(rows(5))),
    "two-frames.jsonl.zst": zstandard.compress(lines(rows(2)))
    + zstandard.compress(lines(rows(5)[2:])),
    "two-members.jsonl.gz": gzip.compress(lines(rows(2))) + gzip.compress(lines(rows(5)[2:])),
    "zero-padded.jsonl.gz": gzip.compress(lines(rows(5))) + bytes(512),
    "a.json": json.dumps(rows(5), indent=1).encode(),
    "lines.json": lines(rows(5)),
    "a.csv": b"id,text\n" + b"".join(f"r{i},text number {i}\n".encode() for i in range(5)),
    "bom.csv": b"\xef\xbb\xbftext\n" + b"".join(b"text number %d\n" % i for i in range(5)),
    "a.tsv": b"id\ttext\n" + b"".join(f"r{i}\ttext number {i}\n".encode() for i in range(5)),
    "bom.jsonl": b"\xef\xbb\xbf" + lines(rows(5)),
    "crlf.jsonl": lines(rows(5)).replace(b"\n", b"\r\n"),
    "blank.jsonl": lines(rows(5)).replace(b"\n", b"\n\n \n"),
    "cut-newline.jsonl": lines(rows(5))[:-1],
}


@pytest.mark.parametrize("name", WAYS)
def test_every_format_gives_the_same_texts(tmp_path, read_path, name):
    (tmp_path / name).write_bytes(WAYS[name])
    artifact = read_path(tmp_path / name)
    assert texts(artifact) == [f"text number {i}" for i in range(5)]
    assert artifact.manifest.ledger.rows_in == 5


def test_parquet_and_both_arrow_formats(tmp_path, read_path):
    pq.write_table(PARQUET, tmp_path / "a.parquet")
    with pa.ipc.new_file(tmp_path / "b.arrow", PARQUET.schema) as writer:
        writer.write_table(PARQUET)
    with pa.ipc.new_stream(tmp_path / "c.arrow", PARQUET.schema) as writer:
        writer.write_table(PARQUET)
    encoded = PARQUET.set_column(0, "text", PARQUET["text"].dictionary_encode())
    pq.write_table(encoded, tmp_path / "d.parquet")
    artifact = read_path(*(tmp_path / n for n in ("a.parquet", "b.arrow", "c.arrow", "d.parquet")))
    assert texts(artifact) == [f"text number {i}" for i in range(5)] * 4
    assert len(set(read_table(artifact)["id"].to_pylist())) == 20


def test_plain_files_are_one_document_each(tmp_path, read_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "b.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\n")
    (folder / "a.md").write_text("# title\n")
    (folder / "sub").mkdir()
    (folder / "sub" / "c.txt.gz").write_bytes(gzip.compress(b"deep"))
    (folder / "image.png").write_bytes(b"\x89PNG")
    (folder / ".hidden.txt").write_text("not this")
    (folder / "empty.txt").write_text("")
    artifact = read_path({"path": str(folder), "license": "MIT"})
    table = read_table(artifact)
    assert table["origin"].to_pylist() == ["a.md", "b.txt", "sub/c.txt.gz"]
    assert table["text"].to_pylist() == ["# title\n", "one\ntwo\n", "deep"]
    assert set(table["source"].to_pylist()) == {"in"}
    assert set(table["license"].to_pylist()) == {"MIT"}
    assert rejects(artifact) == [("empty.txt", "empty_text")]
    assert artifact.manifest.facts["sources"][0]["ignored_files"] == 1


BAD_LINES = {
    b'{"text": "cut': "invalid_json",
    b'{"te': "invalid_json",
    b'["a"]': "not_an_object",
    b'{"id": "x"}': "missing_text",
    b'{"text": null}': "null_text",
    b'{"text": 3}': "text_not_string",
    b'{"text": ["a"]}': "text_not_string",
    b'{"text": "caf\xe9"}': "invalid_utf8",
    b'{"text": "\\ud800"}': "lone_surrogate",
    b'{"text": "a\\u0000b"}': "nul_character",
    b'{"text": ""}': "empty_text",
    b'{"text": " \\n"}': "empty_text",
    b'{"text": "a", "text": "b"}': "duplicate_key",
    b"[" * 100_000 + b"]" * 100_000: "nested_too_deep",
}


@pytest.mark.parametrize("line", BAD_LINES, ids=lambda line: line[:30].decode("latin-1"))
def test_a_bad_line_is_set_aside_with_reason_and_place(tmp_path, read_path, line):
    content = lines(rows(3)) + line + b"\n" + lines(rows(1))
    (tmp_path / "a.jsonl").write_bytes(content)
    artifact = read_path(tmp_path / "a.jsonl", max_bad_rate=0.2)
    reason = BAD_LINES[line]
    assert rejects(artifact) == [("a.jsonl:4", reason)]
    assert artifact.manifest.ledger.identity() == {
        "rows_in": 5,
        "rows_out": 4,
        "rejects": {reason: 1},
    }
    assert artifact.manifest.facts["reasons"] == {reason: 1}


def test_a_line_over_the_cap_is_set_aside(tmp_path, read_path, monkeypatch):
    monkeypatch.setattr("tasks.data.reading.records.MAX_ROW_BYTES", 300_000)
    long = json.dumps({"text": "x" * 1_000_000}).encode() + b"\n"
    (tmp_path / "a.jsonl").write_bytes(lines(rows(2)) + long + lines(rows(3)))
    artifact = read_path(tmp_path / "a.jsonl", max_bad_rate=0.5)
    assert rejects(artifact) == [("a.jsonl:3", "line_too_long")]
    assert artifact.manifest.rows == 5
    (tmp_path / "b.txt").write_text("x" * 1_000_000)
    assert rejects(read_path(tmp_path / "b.txt", tmp_path / "a.jsonl", max_bad_rate=0.5))[0] == (
        "b.txt",
        "too_large",
    )


def test_invalid_utf8_inside_parquet_is_set_aside(tmp_path, read_path):
    column = pa.array([b"good", b"caf\xe9", None], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
    artifact = read_path(tmp_path / "a.parquet", max_bad_rate=1.0)
    assert rejects(artifact) == [("a.parquet:2", "invalid_utf8"), ("a.parquet:3", "null_text")]


def test_one_bad_row_in_404_passes_and_two_in_100_do_not(tmp_path, read_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines(rows(403)) + b'{"id": "cut", "te\n')
    assert read_path(path).manifest.ledger.rejects == {"invalid_json": 1}
    path.write_bytes(lines(rows(98)) + b"{\n{\n")
    with pytest.raises(BadInput, match=r"2 of 100 rows are malformed.*invalid_json 2.*a\.jsonl:99"):
        read_path(path)


def test_empty_texts_do_not_count_as_malformed(tmp_path, read_path):
    (tmp_path / "a.jsonl").write_bytes(lines([*rows(2), {"text": ""}, {"text": ""}]))
    assert read_path(tmp_path / "a.jsonl").manifest.ledger.rejects == {"empty_text": 2}


def test_a_wrong_field_name_shows_the_keys(tmp_path, read_path):
    (tmp_path / "a.jsonl").write_bytes(lines([{"id": 1, "content": "a"}, {"body": "b"}]))
    with pytest.raises(
        BadInput, match="no row has the field 'text'; the keys seen are id, content"
    ):
        read_path(tmp_path / "a.jsonl", max_bad_rate=1.0)
    pq.write_table(PARQUET, tmp_path / "a.parquet")
    with pytest.raises(BadInput, match="no column 'body'; it has: text, n"):
        read_path({"path": str(tmp_path / "a.parquet"), "text": "body"})


COMPRESS = {
    ".gz": gzip.compress,
    ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("damage", ["cut", "junk", "cut-second", "flipped"])
def test_a_damaged_compressed_file_is_refused_by_name(tmp_path, read_path, suffix, damage):
    whole = COMPRESS[suffix](lines([{"text": os.urandom(200).hex()} for _ in range(200)]))
    content = {
        "cut": whole[: len(whole) // 2],
        "junk": whole + b"junk after the end",
        "cut-second": whole + whole[:100],
        "flipped": whole[:99] + bytes([whole[99] ^ 16]) + whole[100:],
    }[damage]
    path = tmp_path / f"b.jsonl{suffix}"
    path.write_bytes(content)
    with pytest.raises(
        BadInput, match=rf"b\.jsonl\{suffix} is damaged: .* after \d+ bytes of text"
    ):
        read_path(path)


def test_a_decompression_bomb_is_refused(tmp_path, read_path, monkeypatch):
    monkeypatch.setattr("tasks.data.reading.decompress.RATIO_FREE_BYTES", 1 << 20)
    (tmp_path / "a.txt.zst").write_bytes(zstandard.compress(bytes(8 << 20)))
    with pytest.raises(BadInput, match=r"a\.txt\.zst: \d+ bytes on disk became more than"):
        read_path(tmp_path / "a.txt.zst")


def test_damaged_tables_and_json_are_refused_by_name(tmp_path, read_path):
    pq.write_table(PARQUET, tmp_path / "a.parquet")
    whole = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadInput, match=r"a\.parquet is damaged"):
        read_path(tmp_path / "a.parquet")
    (tmp_path / "b.arrow").write_bytes(b"not arrow at all")
    with pytest.raises(BadInput, match=r"b\.arrow is damaged"):
        read_path(tmp_path / "b.arrow")
    (tmp_path / "c.json").write_bytes(b'[{"text": "a"},')
    with pytest.raises(BadInput, match=r"c\.json is not valid JSON"):
        read_path(tmp_path / "c.json")


def test_paths_that_lead_nowhere_are_quoted(tmp_path, read_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match=f"'data/x.txt' does not exist; looked for {tmp_path}/data"):
        read_path("data/x.txt")
    with pytest.raises(BadInput, match=rf"'\*\.txt' matches no file; looked below {tmp_path}"):
        read_path("*.txt")
    (tmp_path / "a.pdf").write_text("x")
    with pytest.raises(BadInput, match=r"suffix \.pdf, which is not read; supported: \.txt"):
        read_path("a.pdf")
    with pytest.raises(BadInput, match=r"has no file to read; .* suffixes \.pdf"):
        read_path(tmp_path)
    with pytest.raises(BadInput, match="unknown corpus 'python://stdlb': did you mean 'stdlib'"):
        read_path("python://stdlb")
    with pytest.raises(BadInput, match="cannot be listed"):
        read_path("nosuch://bucket/a.jsonl")


def test_only_regular_files_below_the_root_are_read(tmp_path, read_path):
    folder, outside = tmp_path / "in", tmp_path / "secret.txt"
    folder.mkdir()
    outside.write_text("secret")
    (folder / "a.txt").write_text("fine")
    (folder / "b.txt").symlink_to(outside)
    with pytest.raises(BadInput, match=r"b\.txt is a link out of"):
        read_path(folder)
    (folder / "b.txt").unlink()
    os.mkfifo(folder / "c.txt")
    with pytest.raises(BadInput, match=r"c\.txt is not a regular file"):
        read_path(folder)
    with pytest.raises(BadInput, match=r"c\.txt is not a regular file"):
        read_path(folder / "c.txt")


def test_nothing_to_read_is_an_error(tmp_path, read_path):
    (tmp_path / "a.jsonl").write_text("\n")
    with pytest.raises(BadInput, match="0 of 0 rows are usable"):
        read_path(tmp_path / "a.jsonl")


def test_ids_are_unique_and_stable(tmp_path, read_path):
    (tmp_path / "x").mkdir()
    for path in (tmp_path / "a.jsonl", tmp_path / "x" / "a.jsonl"):
        path.write_bytes(lines([*rows(2), {"id": "r0", "text": "again"}]))
    by_place = read_table(read_path(tmp_path / "a.jsonl", tmp_path / "x" / "a.jsonl"))
    assert by_place["id"].to_pylist() == [
        "a.jsonl:1",
        "a.jsonl:2",
        "a.jsonl:3",
        "a.jsonl-2/a.jsonl:1",
        "a.jsonl-2/a.jsonl:2",
        "a.jsonl-2/a.jsonl:3",
    ]
    by_field = read_path({"path": str(tmp_path / "a.jsonl"), "id": "id"})
    assert read_table(by_field)["id"].to_pylist() == [
        "a.jsonl/r0",
        "a.jsonl/r1",
        "a.jsonl/r0@a.jsonl:3",
    ]
    assert by_field.manifest.facts["sources"][0]["renamed_ids"] == 1


def test_identity_is_content_and_fields_not_place(tmp_path, store):
    for folder in ("x", "y", "z"):
        (tmp_path / folder / "in").mkdir(parents=True)
        (tmp_path / folder / "in" / "a.jsonl").write_bytes(lines(rows(3)))
    (tmp_path / "z" / "in" / "a.jsonl").write_bytes(lines(rows(4)))
    x, y, z = (tmp_path / f / "in" for f in "xyz")
    assert fingerprint(x) == fingerprint(y) != fingerprint(z)
    assert fingerprint(x, weight=2.0, max_epochs=3) == fingerprint(x)
    assert fingerprint(x, text="body") != fingerprint(x)


def test_hashes_are_remembered_until_the_file_changes(tmp_path, store, monkeypatch):
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines(rows(3)))
    past = time.time() - 100
    os.utime(path, (past, past))
    first = fingerprint(path)
    with monkeypatch.context() as patch:
        patch.setattr(
            "tasks.data.reading.hashes.file_hash", lambda path: pytest.fail("hashed again")
        )
        assert fingerprint(path) == first
    path.write_bytes(lines(rows(3)).replace(b"text n", b"Text n"))
    assert fingerprint(path) != first
    (store.root / "source_hashes.json").write_text("{broken")
    assert fingerprint(path) != first


def test_a_fresh_file_is_not_remembered(tmp_path, store):
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines(rows(3)))
    now = path.stat().st_mtime_ns
    first = fingerprint(path)
    path.write_bytes(lines(rows(3)).replace(b"text n", b"Text n"))
    os.utime(path, ns=(now, now))  # same size and time: only the content tells
    assert fingerprint(path) != first


def test_a_source_that_changes_meanwhile_is_an_error(tmp_path, read_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines(rows(3)))
    original = Intake.read

    def read_then_append(self, file, license):
        original(self, file, license)
        path.write_bytes(lines(rows(4)))

    monkeypatch.setattr(Intake, "read", read_then_append)
    with pytest.raises(BadInput, match="changed while it was read"):
        read_path(path)


def test_an_fsspec_url_is_copied_once(read_path, monkeypatch):
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe("/corpus/a.jsonl", lines(rows(2)))
    memory.pipe("/corpus/b.jsonl", lines(rows(3)))
    artifact = read_path("memory://corpus/*.jsonl")
    assert artifact.manifest.rows == 5
    assert read_table(artifact)["id"].to_pylist()[0] == "corpus/a.jsonl:1"
    memory.rm("/corpus/b.jsonl")
    assert read_path("memory://corpus/*.jsonl").manifest.rows == 2
    monkeypatch.setattr(type(memory), "get_file", lambda *args: pytest.fail("fetched again"))
    assert read_path("memory://corpus/*.jsonl").manifest.rows == 2
    with pytest.raises(BadInput, match="'memory://nowhere/' matches no file"):
        read_path("memory://nowhere/")


def test_a_hub_data_set_is_fetched_at_its_revision(read_path, monkeypatch):
    def snapshot(repository, *, revision, local_dir, **options):
        assert (repository, revision, options["repo_type"]) == ("org/name", "v1", "dataset")
        local_dir.joinpath("train.jsonl").write_bytes(lines(rows(3)))

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    artifact = read_path("hf://org/name@v1")
    assert read_table(artifact)["id"].to_pylist()[0] == "org/name@v1/train.jsonl:1"


def test_the_embedded_corpus_is_the_standard_library(read_path):
    artifact = read_path("python://stdlib")
    table = read_table(artifact)
    origins = table["origin"].to_pylist()
    assert "asyncio/events.py" in origins
    assert origins == sorted(origins)
    assert not [o for o in origins if "/tests/" in o or o.startswith(("test/", "site-packages"))]
    assert set(table["license"].to_pylist()) == {"PSF-2.0"}
    assert set(table["source"].to_pylist()) == {"python://stdlib"}
    assert sysconfig.get_path("stdlib") not in json.dumps(artifact.manifest.settings)
    assert artifact.manifest.rows > 500
    assert artifact.manifest.ledger.rows_in == artifact.manifest.rows


def test_packages_carry_their_own_license():
    files = python_files("all")
    names = [file.name for file in files]
    assert len(set(names)) == len(names)
    license_of = corpus_licenses(files)
    by_name = {file.name: file for file in files}
    assert license_of(by_name["site-packages/pytest/__init__.py"]) == "MIT"
    assert license_of(by_name["ast.py"]) == "PSF-2.0"


def test_labels_are_unique(tmp_path, store):
    for folder in ("x/a", "y/a", "a-2"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "t.txt").write_text("text")
    sources = tuple(SourceSettings(path=str(tmp_path / f)) for f in ("x/a", "y/a", "a-2"))
    assert [source.label for source in resolve(sources)] == ["a", "a-2", "a-2-2"]
