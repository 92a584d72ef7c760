"""Names from outside lead nowhere but below their folder."""

import os
from pathlib import Path

import pytest

from cluster.artifact import Artifact
from cluster.collection import collect
from cluster.errors import BadInput
from cluster.manifest import MANIFEST, FileRecord, Manifest
from cluster.names import inside
from cluster.node_cache import fetched, keep_manifest
from cluster.object_store import ObjectStore
from cluster.processes import temporary_folder
from cluster.store import Spec, Store

OUT = [
    "",
    ".",
    "..",
    "../x",
    "a/../../x",
    "/etc/passwd",
    "C:/x",
    "..\\x",
    "a\0b",
    "out/x",
    "loop/x",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "out").symlink_to(tmp_path)
    (folder / "loop").symlink_to(folder / "loop")
    return folder


@pytest.mark.parametrize("name", OUT[:-1])
def test_a_name_that_leads_out_is_refused(folder: Path, name: str) -> None:
    with pytest.raises(BadInput, match="leads out of"):
        inside(folder, name)


@pytest.mark.parametrize("name", ["x", "a/b.jsonl", "a..b", ".hidden", "a/./b", "loop/x"])
def test_a_name_below_the_folder_is_its_path(folder: Path, name: str) -> None:
    assert inside(folder, name) == folder / name


def manifest(name: str, stage: str = "read") -> Manifest:
    """As somebody who may write to a shared store writes one."""
    return Manifest(
        stage=stage,
        version=1,
        recipe="x",
        fingerprint="0" * 64,
        settings={},
        inputs={},
        files={name: FileRecord(size=5, blocks=["0" * 64])},
    )


def test_a_manifest_of_a_shared_store_writes_and_reads_nothing_outside(
    tmp_path: Path, fresh_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = ObjectStore(f"file://{tmp_path}/shared")
    monkeypatch.setenv("HEADRACE_STORE", f"file://{tmp_path}/shared")
    evil = manifest("../../../../owned")
    shared.write(f"read/x-00000000/{MANIFEST}", evil.sealed().encode())
    shared.write("read/x-00000000/../../../../owned", b"owned")
    artifact = Store().open("read/x-00000000")
    for read in (artifact.folder, artifact.fault, lambda: artifact.file("../../../../owned")):
        with pytest.raises(BadInput, match="leads out"):
            read()
    for folder in ("fetched/read/x-00000000", "fetched/work/../../.."):
        with pytest.raises(BadInput, match="leads out"):
            fetched(fresh_home / folder, "../../../../owned", next(iter(evil.files.values())))
    with pytest.raises(BadInput, match="leads out"):
        keep_manifest(fresh_home / "fetched" / "read" / "..")
    assert not [path for path in tmp_path.rglob("owned") if "shared" not in path.parts]


def test_a_manifest_is_kept_below_its_folder_when_its_artifact_goes(fresh_home: Path) -> None:
    lying = fresh_home / "artifacts" / "read" / "x-00000000"
    lying.mkdir(parents=True)
    (lying / MANIFEST).write_text(manifest("a", stage="../../../planted").sealed())
    with pytest.raises(BadInput, match="leads out"):
        collect()
    assert not (fresh_home.parent / "planted").exists()


def test_no_label_names_an_artifact_outside(fresh_home: Path) -> None:
    spec = Spec("read", 1, "x", {}, {}, label="../../../x")
    with pytest.raises(BadInput, match="leads out"):
        Store().folder(spec)


def test_d25_the_temporary_folder_is_no_link_and_nobody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr("cluster.processes.LONGEST", 200)
    own = temporary_folder()
    assert own == tmp_path / f"headrace-{os.getuid()}" and own.stat().st_mode & 0o777 == 0o700
    own.rmdir()
    (tmp_path / "private").mkdir(mode=0o700)
    own.symlink_to(tmp_path / "private")
    other = temporary_folder()
    assert other not in (own, tmp_path / "private") and not other.is_symlink()
    assert temporary_folder() == other
    own.unlink()
    own.mkdir()
    own.chmod(0o777)
    assert temporary_folder() == other


def test_a_link_that_was_planted_among_what_was_fetched_is_not_written_through(
    fresh_home: Path, tmp_path: Path
) -> None:
    folder = fresh_home / "fetched" / "read" / "x-00000000"
    folder.mkdir(parents=True)
    (folder / "a").symlink_to(tmp_path / "victim")
    artifact = Artifact(folder, manifest("a"))
    with pytest.raises(BadInput, match="leads out"):
        artifact.file("a")
