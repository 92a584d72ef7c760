import gzip
import io
import tarfile
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from cluster.errors import BadInput
from tasks.data.text import read_table

ROWS = b'{"text": "row one"}\n{"text": "row two"}\n'


def parquet():
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": ["cell"]}), sink)
    return sink.getvalue()


MEMBERS = {
    "b/notes.txt": b"a note",
    "a.jsonl": ROWS,
    "c.jsonl.gz": gzip.compress(ROWS),
    "t.parquet": parquet(),
    "image.png": b"\x89PNG",
    ".hidden.txt": b"not this",
}
EXPECTED = {
    "b/notes.txt": ["a note"],
    "a.jsonl": ["row one", "row two"],
    "c.jsonl.gz": ["row one", "row two"],
    "t.parquet": ["cell"],
}


def tar(members):
    """A tar of (name or TarInfo, content) pairs."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        for name, content in members:
            about = tarfile.TarInfo(name) if isinstance(name, str) else name
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content))
    return sink.getvalue()


def package(members, compression=zipfile.ZIP_DEFLATED):
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", compression) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return sink.getvalue()


WAYS = {
    "in.tar": tar,
    "in.tar.gz": lambda m: gzip.compress(tar(m)),
    "in.tgz": lambda m: gzip.compress(tar(m)),
    "in.tar.zst": lambda m: zstandard.compress(tar(m)),
    "in.tzst": lambda m: zstandard.compress(tar(m)),
    "in.zip": package,
    "stored.zip": lambda m: package(m, zipfile.ZIP_STORED),
    "bz2.zip": lambda m: package(m, zipfile.ZIP_BZIP2),
}


@pytest.mark.parametrize("name", WAYS)
def test_every_archive_gives_its_members(tmp_path, read_path, name):
    (tmp_path / name).write_bytes(WAYS[name](MEMBERS.items()))
    artifact = read_path(tmp_path / name)
    table = read_table(artifact)
    assert table["text"].to_pylist() == [t for texts in EXPECTED.values() for t in texts]
    origins = table["origin"].to_pylist()
    assert origins[:2] == [f"{name}/b/notes.txt", f"{name}/a.jsonl:1"]
    assert table["id"].to_pylist() == origins
    assert artifact.manifest.facts["sources"][0]["ignored_files"] == 1
    assert artifact.manifest.ledger.identity() == {"rows_in": 6, "rows_out": 6, "rejects": {}}
    assert {p.name for p in tmp_path.iterdir()} == {"home", name}


def test_an_archive_in_a_folder_is_read_below_its_name(tmp_path, read_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.tar").write_bytes(tar([("a.jsonl", ROWS)]))
    table = read_table(read_path({"path": str(tmp_path / "in")}))
    assert table["id"].to_pylist() == ["in/x.tar/a.jsonl:1", "in/x.tar/a.jsonl:2"]


def member(name, **about):
    made = tarfile.TarInfo(name)
    for key, value in about.items():
        setattr(made, key, value)
    return made


LINK = {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}
REFUSED = {
    "parent": ([("../x.txt", b"")], "could lead out"),
    "inside": ([("a/../../x.txt", b"")], "could lead out"),
    "absolute": ([("/etc/x.txt", b"")], "could lead out"),
    "backslash": ([("a\\x.txt", b"")], "could lead out"),
    "drive": ([("c:x.txt", b"")], "could lead out"),
    "symlink": ([(member("x.txt", **LINK), b"")], "a link to /etc/passwd"),
    "through": ([(member("x", **LINK), b""), ("x/y.txt", b"")], "a link to /etc/passwd"),
    "hard link": ([(member("x.txt", type=tarfile.LNKTYPE, linkname="y"), b"")], "a link to y"),
    "device": ([(member("x.txt", type=tarfile.CHRTYPE), b"")], "a device or pipe"),
    "fifo": ([(member("x.txt", type=tarfile.FIFOTYPE), b"")], "a device or pipe"),
    "twice": ([("x.txt", b"a"), ("x.txt", b"b")], "has the same name"),
    "case": ([("x.txt", b"a"), ("X.TXT", b"b")], "has the same name"),
    "nested": ([("x.tar.gz", b"a")], "an archive inside an archive"),
    "zip in tar": ([("x.zip", b"a")], "an archive inside an archive"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_d15_a_tricky_member_is_refused_by_name(tmp_path, read_path, case):
    members, reason = REFUSED[case]
    (tmp_path / "in.tar").write_bytes(tar([("fine.txt", b"fine"), *members]))
    with pytest.raises(BadInput, match=r"in\.tar: member '.*[xX].*' is refused: .*" + reason):
        read_path(tmp_path / "in.tar")
    assert not (tmp_path / "x.txt").exists()


def test_tricky_members_of_a_zip_are_refused_by_name(tmp_path, read_path):
    link = zipfile.ZipInfo("x.txt")
    link.external_attr = 0o120777 << 16
    cases = [("../x.txt", "could lead out"), (link, "a link"), ("X.zip", "an archive inside")]
    for name, reason in cases:
        (tmp_path / "in.zip").write_bytes(package([("fine.txt", b"fine"), (name, b"a")]))
        with pytest.raises(BadInput, match=rf"in\.zip: member '.*' is refused: .*{reason}"):
            read_path(tmp_path / "in.zip")
    hidden = bytearray(package([("x.txt", b"a")]))
    hidden[hidden.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "in.zip").write_bytes(hidden)
    with pytest.raises(BadInput, match=r"member 'x\.txt' is refused: it is encrypted"):
        read_path(tmp_path / "in.zip")


def test_too_many_members_are_refused(tmp_path, read_path, monkeypatch):
    monkeypatch.setattr("tasks.data.reading.archives.MAX_MEMBERS", 3)
    many = [(f"{n}.txt", b"a") for n in range(4)]
    for name, make in (("in.tar", tar), ("in.zip", package)):
        (tmp_path / name).write_bytes(make(many))
        with pytest.raises(BadInput, match=r"'3\.txt' is refused: .* more than 3 members"):
            read_path(tmp_path / name)


@pytest.mark.parametrize("name", ["in.tar.zst", "in.zip"])
def test_d15_a_bomb_is_refused(tmp_path, read_path, monkeypatch, name):
    monkeypatch.setattr("tasks.data.reading.decompress.RATIO_FREE_BYTES", 1 << 20)
    (tmp_path / name).write_bytes(WAYS[name]([("x.txt", bytes(16 << 20))]))
    with pytest.raises(BadInput, match=rf"{name}: \d+ bytes on disk became more than \d+ bytes"):
        read_path(tmp_path / name)


def test_a_damaged_archive_is_refused_by_name(tmp_path, read_path):
    whole = tar([("a.txt", b"one" * 500), ("b.txt", b"two" * 500)])
    second = whole.index(b"b.txt")
    cuts = {
        "in a member": whole[: second - 600],
        "between members": whole[:second],
        "in a header": whole[: second + 100],
        "broken header": whole[: second + 150] + b"?" + whole[second + 151 :],
        "no end": whole[: second + 512 + 1536],
    }
    for damage, content in cuts.items():
        (tmp_path / "in.tar").write_bytes(content)
        with pytest.raises(BadInput, match=r"in\.tar.* is damaged"):
            read_path(tmp_path / "in.tar")
            pytest.fail(damage)
    packed = package([("a.txt", b"one" * 500), ("b.txt", b"two" * 500)], zipfile.ZIP_STORED)
    flipped = packed.replace(b"oneone", b"onXone", 1)
    for content in (packed[: len(packed) // 2], flipped):
        (tmp_path / "in.zip").write_bytes(content)
        with pytest.raises(BadInput, match=r"in\.zip.* is damaged"):
            read_path(tmp_path / "in.zip")
    squeezed = gzip.compress(whole)
    (tmp_path / "in.tgz").write_bytes(squeezed[:-4])
    with pytest.raises(BadInput, match=r"in\.tgz is damaged"):
        read_path(tmp_path / "in.tgz")


def test_a_bad_row_of_a_member_is_named_with_it(tmp_path, read_path):
    (tmp_path / "in.tar").write_bytes(tar([("a.jsonl", ROWS + b"{\n")]))
    with pytest.raises(BadInput, match=r"in\.tar, member a\.jsonl:3 \(invalid_json\)"):
        read_path(tmp_path / "in.tar", max_bad_rate=0.1)
