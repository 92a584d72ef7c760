import gzip
import itertools
import json
import os
import re
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from cluster.errors import BadInput
from cluster.settings import contents
from cluster.stage import build, specify
from tasks.data.reading import records
from tasks.data.reading.hashes import content_hashes
from tasks.data.reading.intake import Intake
from tasks.data.reading.licenses import corpus_licenses
from tasks.data.reading.settings import SourceSettings
from tasks.data.reading.sources import Source, in_order, python_files, resolve
from tasks.data.reading.stage import ReadSettings, read
from tasks.data.text import read_table


def rows(count, **more):
    return [{"id": f"r{i}", "text": f"text number {i}", **more} for i in range(count)]


def lines(objects):
    return "".join(json.dumps(o) + "\n" for o in objects).encode()


def texts(artifact):
    return read_table(artifact)["text"].to_pylist()


def rejects(artifact, block=0):
    table = pq.read_table(artifact.file(f"rejects-{block:05d}.parquet"))
    return [(r["origin"], r["reason"]) for r in table.to_pylist()]


def fingerprint(*paths, **more):
    sources = tuple({"path": str(p)} | more for p in paths)
    settings = ReadSettings(sources=sources)
    found = contents(settings)
    return specify(read, "test", {}, {"settings": settings}, found=found).fingerprint


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
    b'{"text": NaN}': "not_a_number",
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
    monkeypatch.setattr("tasks.data.reading.rows.MAX_ROW_BYTES", 300_000)
    long = json.dumps({"text": "x" * 1_000_000}).encode() + b"\n"
    (tmp_path / "a.jsonl").write_bytes(lines(rows(2)) + long + lines(rows(3)))
    artifact = read_path(tmp_path / "a.jsonl", max_bad_rate=0.5)
    assert rejects(artifact) == [("a.jsonl:3", "line_too_long")]
    assert artifact.manifest.rows == 5
    (tmp_path / "b.txt").write_text("x" * 1_000_000)
    both = read_path(tmp_path / "b.txt", tmp_path / "a.jsonl", max_bad_rate=0.5)
    assert rejects(both, block=1) == [("b.txt", "too_large")]


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


def test_the_keys_of_a_json_list_are_read_from_its_head(tmp_path, read_path, monkeypatch):
    path, parsed = tmp_path / "a.json", []
    original = records.parse_json
    monkeypatch.setattr(records, "parse_json", lambda t: parsed.append(len(t)) or original(t))
    monkeypatch.setattr(records, "HEAD_BYTES", 1000)
    many = [{"text": "é" * 20, "more": {"x": [1]}, "n": n} for n in range(20_000)]
    for content, keys in (
        (b"\xef\xbb\xbf [ " + json.dumps(many).encode()[1:], ["text", "more", "n"]),
        (json.dumps([{"text": "long" * 100_000}, *many]).encode(), []),  # not in the head
        (lines(many), ["text", "more", "n"]),
    ):
        path.write_bytes(content)
        assert read_path(path).manifest.facts["sources"][0]["keys"] == keys
    assert len(parsed) == 2  # each list once


def test_a_wrong_field_name_shows_the_keys(tmp_path, read_path):
    (tmp_path / "a.jsonl").write_bytes(lines([{"id": 1, "content": "a"}, {"body": "b"}]))
    with pytest.raises(BadInput, match=r"no column 'text' \(`text` of a .*; it has: id, content"):
        read_path(tmp_path / "a.jsonl", max_bad_rate=1.0)
    pq.write_table(PARQUET, tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text("text,n\na,1\n")
    for path in (str(tmp_path / "a.parquet"), str(tmp_path / "a.csv")):
        with pytest.raises(BadInput, match=r"no column 'body' \(`text` of a .*; it has: text, n"):
            read_path({"path": path, "text": "body"})
        with pytest.raises(
            BadInput, match=r"no column 'web' \(`label` of the source\); it has: te"
        ):
            read_path({"path": path, "label": "web"})


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


BOMB = """
import pathlib, re, resource, sys
from tasks.data.reading.decompress import read_chunks
from tasks.data.reading.json_lines import json_lines
from tasks.data.reading.settings import SourceSettings
status = pathlib.Path("/proc/self/status").read_text()
most = (int(re.search(r"VmSize:\\s+(\\d+)", status)[1]) << 10) + (320 << 20)
resource.setrlimit(resource.RLIMIT_AS, (most, most))
path = pathlib.Path(sys.argv[1])
for row in json_lines(read_chunks(path), SourceSettings(path=sys.argv[1])):
    print(row)
"""


def test_a_gibibyte_of_zeros_is_refused_within_320_mib_of_memory(tmp_path):
    path = tmp_path / "a.jsonl.zst"
    with path.open("wb") as sink, zstandard.ZstdCompressor().stream_writer(sink) as writer:
        for _ in range(1024):
            writer.write(bytes(1 << 20))
    assert path.stat().st_size < 50_000
    ended = subprocess.run(
        [sys.executable, "-c", BOMB, str(path)],
        env=os.environ | {"PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1 and ended.stdout == ""
    assert re.search(r"BadInput: .*a\.jsonl\.zst: \d+ bytes on disk became more than", ended.stderr)


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
        "a.jsonl/r0@3",
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


CHANGES = {
    "more rows": lambda path: path.write_bytes(lines(rows(4))),
    "of the same size": lambda path: path.write_bytes(lines(rows(3)).replace(b"text n", b"Text n")),
    "gone": lambda path: path.unlink(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_source_that_changes_meanwhile_is_an_error(
    tmp_path, read_path, store, monkeypatch, change
):
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines(rows(3)))
    os.utime(path, (time.time() - 100,) * 2)
    original = Intake.read

    def read_then_change(self, file, license, part):
        original(self, file, license, part)
        CHANGES[change](path)

    monkeypatch.setattr(Intake, "read", read_then_change)
    with pytest.raises(BadInput, match=r"a\.jsonl changed while it was read; run again when"):
        read_path(path)
    assert not list((store.root / "artifacts" / "read").glob("[!.]*"))


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
    folders = ("x/a", "y/a", "a-2")
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "t.txt").write_text(f"text of {folder}")
    found = set()
    for order in itertools.permutations(folders):
        sources = resolve(tuple(SourceSettings(path=str(tmp_path / f)) for f in order))
        pairs = in_order(sources, content_hashes(sources))
        assert [source.label for source, _ in pairs] == ["a", "a-2", "a-2-2"]
        found.add(tuple(content for _, content in pairs))
    assert len(found) == 1


def test_labels_of_which_one_continues_the_other_are_told_apart():
    settings = SourceSettings(path="x")
    sources = [Source(settings, label, ()) for label in ("org/name", "org")]
    labels = [source.label for source, _ in in_order(sources, ["", ""])]
    assert labels == ["org", "org-name"]


def files_of(artifact):
    return {path.name: path.read_bytes() for path in sorted(artifact.path.glob("*.parquet"))}


def test_sources_in_any_order_give_the_same_artifact_bit_for_bit(tmp_path, store):
    for number, folder in enumerate(("x", "y", "z")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.jsonl").write_bytes(lines(rows(3 + number)))
    made = set()
    for order in itertools.permutations("xyz"):
        sources = tuple({"path": str(tmp_path / f / "a.jsonl"), "id": "id"} for f in order)
        built = build(read, store, settings=ReadSettings(sources=sources), force=True)
        made.add((built.fingerprint, tuple(files_of(built).items())))
    assert len(made) == 1
    ids = read_table(built)["id"].to_pylist()
    assert len(set(ids)) == 12


def test_the_order_of_files_in_a_folder_is_by_name(tmp_path, read_path, monkeypatch):
    for name in ("b", "a", "c"):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{name}.txt").write_text(name)
    expected = files_of(read_path(tmp_path / "in"))
    original = os.walk

    def backwards(*arguments, **options):
        for parent, folders, names in original(*arguments, **options):
            yield parent, folders, sorted(names, reverse=True)

    monkeypatch.setattr(os, "walk", backwards)
    assert texts(read_path(tmp_path / "in")) == ["a", "b", "c"]
    assert files_of(read_path(str(tmp_path / "in" / "*.txt"))) == expected


def test_fields_are_mapped_and_nested_ones_named_with_dots(tmp_path, read_path):
    nested = [
        {"content": "one", "meta": {"license": "MIT", "no": 7}, "good": True},
        {"content": "two", "meta": {"license": None, "no": 8}, "good": None},
        {"content": "three", "meta": {"no": 9}, "good": "yes"},
    ]
    fields = {"text": "content", "id": "meta.no", "license_field": "meta.license", "label": "good"}
    (tmp_path / "a.jsonl").write_bytes(lines(nested))
    flat = [row | {"good": json.dumps(row["good"])} for row in nested]
    pq.write_table(pa.Table.from_pylist(flat), tmp_path / "b.parquet")
    for name in ("a.jsonl", "b.parquet"):
        source = {"path": str(tmp_path / name), "license": "CC0-1.0", **fields}
        table = read_table(read_path(source))
        assert table["id"].to_pylist() == [f"{name}/7", f"{name}/8", f"{name}/9"]
        assert table["license"].to_pylist() == ["MIT", "CC0-1.0", "CC0-1.0"]
    labels = read_table(read_path({"path": str(tmp_path / "a.jsonl"), **fields}))["label"]
    assert labels.to_pylist() == ["true", None, "yes"]


BAD_FIELDS = {
    b'{"text": "a", "id": ""}': "missing_id",
    b'{"text": "a"}': "missing_id",
    b'{"text": "a", "id": true}': "missing_id",
    b'{"text": "a", "id": "x", "l": {"a": 1}}': "license_not_string",
    b'{"text": "a", "id": "x", "c": ["a"]}': "label_not_scalar",
}


@pytest.mark.parametrize("line", BAD_FIELDS, ids=bytes.decode)
def test_a_field_that_cannot_be_used_has_its_reason(tmp_path, read_path, line):
    (tmp_path / "a.jsonl").write_bytes(lines(rows(3)) + line)
    source = {"path": str(tmp_path / "a.jsonl"), "id": "id", "license_field": "l", "label": "c"}
    artifact = read_path(source, max_bad_rate=0.5)
    assert rejects(artifact) == [("a.jsonl:4", BAD_FIELDS[line])]


def test_ids_of_a_folder_are_unique_by_file(tmp_path, read_path):
    (tmp_path / "in").mkdir()
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / "in" / name).write_bytes(
            lines([{"id": "r", "text": "1"}, {"id": "r@3", "text": "2"}, {"id": "r", "text": "3"}])
        )
    table = read_table(read_path({"path": str(tmp_path / "in"), "id": "id"}))
    assert table["id"].to_pylist() == [
        f"in/{name}/{row}" for name in ("a.jsonl", "b.jsonl") for row in ("r", "r@3", "r@3@3")
    ]


def test_a_row_count_finds_what_a_cut_between_members_hides(tmp_path, read_path):
    whole = gzip.compress(lines(rows(5))) + gzip.compress(lines(rows(5)))
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(whole)
    assert read_path({"path": str(path), "rows": 10}).manifest.rows == 10
    path.write_bytes(gzip.compress(lines(rows(5))))  # the second member is lost
    with pytest.raises(BadInput, match=r"a\.jsonl\.gz' has 5 rows, its recipe says 10"):
        read_path({"path": str(path), "rows": 10})


def test_a_format_can_be_said(tmp_path, read_path):
    (tmp_path / "list.train.zst").write_bytes(zstandard.compress(b"one\r\n\ntwo\nthree"))
    artifact = read_path({"path": str(tmp_path / "list.train.zst"), "format": "lines"})
    table = read_table(artifact)
    assert table["text"].to_pylist() == ["one", "two", "three"]
    assert table["id"].to_pylist() == [f"list.train.zst:{n}" for n in (1, 3, 4)]


def test_csv_rows_of_another_length_and_quotes_in_the_text(tmp_path, read_path):
    (tmp_path / "a.csv").write_bytes(b'id,text\n1,"a\nb"\n2\n3,c,d\n\n4,e\n')
    artifact = read_path(tmp_path / "a.csv", max_bad_rate=0.5)
    assert texts(artifact) == ["a\nb", "e"]
    expected = [("a.csv:4", "wrong_field_count"), ("a.csv:5", "wrong_field_count")]
    assert rejects(artifact) == expected
    (tmp_path / "b.tsv").write_bytes(b'id\ttext\n1\t"so" he said\n2\t"open\n')
    with pytest.raises(BadInput, match=r"b\.tsv, line 2: .*`quotes: false`"):
        read_path(tmp_path / "b.tsv")
    unquoted = read_path({"path": str(tmp_path / "b.tsv"), "quotes": False})
    assert texts(unquoted) == ['"so" he said', '"open']
    (tmp_path / "c.csv").write_bytes(b"id,body\n1,a\n")
    with pytest.raises(BadInput, match=r"no column 'text' .*; it has: id, body"):
        read_path(tmp_path / "c.csv")


def test_columns_of_a_table_are_named_where_its_first_line_is_a_row(tmp_path, read_path):
    (tmp_path / "sms.tsv").write_text('ham\tone, two, three\nspam\t"win\n')
    with pytest.raises(BadInput, match=r"it has: ham, one, two, three; .* `header: \[\.\.\.\]`"):
        read_path(tmp_path / "sms.tsv")
    told = {"path": str(tmp_path / "sms.tsv"), "header": ["label", "text"], "quotes": False}
    assert texts(read_path(told)) == ["one, two, three", '"win']


def test_columns_may_be_parted_by_semicolons(tmp_path, read_path):
    (tmp_path / "a.csv").write_text('id;text\n1;"a, b; c"\n')
    assert texts(read_path(tmp_path / "a.csv")) == ["a, b; c"]
    (tmp_path / "b.csv").write_text("1;a, b, c\n")
    assert texts(read_path({"path": str(tmp_path / "b.csv"), "header": ["id", "text"]})) == [
        "a, b, c"
    ]


def test_utf_16_is_set_aside_and_never_replaced(tmp_path, read_path):
    (tmp_path / "a.txt").write_bytes("text in UTF-16".encode("utf-16"))
    (tmp_path / "b.txt").write_text("fine")
    artifact = read_path(str(tmp_path / "*.txt"), max_bad_rate=0.5)
    assert texts(artifact) == ["fine"]
    assert rejects(artifact) == [("a.txt", "invalid_utf8")]


def test_empty_files_are_no_rows_and_no_error(tmp_path, read_path, caplog):
    (tmp_path / "a.jsonl").write_bytes(b"")
    (tmp_path / "b.jsonl").write_bytes(b"\r\n\n")
    (tmp_path / "c.jsonl").write_bytes(lines(rows(1)))
    assert read_path(str(tmp_path / "*.jsonl")).manifest.ledger.rows_in == 1
    assert [r.message.rsplit("/")[-1] for r in caplog.records] == [
        "a.jsonl has no rows",
        "b.jsonl has no rows",
    ]


def test_a_file_that_may_not_be_read_names_the_user(tmp_path, read_path, monkeypatch):
    (tmp_path / "a.txt").write_text("x")

    def refuse(*arguments):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tasks.data.reading.sources.os.open", refuse)
    with pytest.raises(BadInput, match=rf"a\.txt cannot be read by user {os.getuid()}"):
        read_path(tmp_path / "a.txt")


def test_an_input_error_names_the_file(tmp_path, read_path, monkeypatch):
    (tmp_path / "a.jsonl").write_bytes(lines(rows(3)))

    def broken(file, suffix):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("tasks.data.reading.decompress._reader", broken)
    with pytest.raises(BadInput, match=r"a\.jsonl is damaged: \[Errno 5\] Input/output error"):
        read_path(tmp_path / "a.jsonl")


def test_a_loop_of_links_is_refused(tmp_path, read_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("fine")
    (tmp_path / "in" / "again").symlink_to(tmp_path / "in")
    assert texts(read_path(tmp_path / "in")) == ["fine"]
    (tmp_path / "in" / "b.txt").symlink_to(tmp_path / "in" / "b.txt")
    with pytest.raises(BadInput, match=r"b\.txt is a link that leads nowhere"):
        read_path(tmp_path / "in")
