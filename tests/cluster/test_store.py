"""The artifact store: complete or absent, found by fingerprint, damage named."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.artifact import Artifact, faults, misplaced
from cluster.collection import collect
from cluster.errors import BadInput
from cluster.manifest import BLOCK_BYTES, MANIFEST, Ledger, Manifest
from cluster.settings import Settings
from cluster.stage import build, specify, stage
from cluster.store import Draft, Store
from tests.cluster.killed_writer import Nothing, pour


class WriteSettings(Settings):
    text: str = "water"
    copies: int = 1


@stage(version=1)
def write(settings: WriteSettings, draft: Draft) -> None:
    (draft.path / "data.txt").write_text(settings.text * settings.copies)
    draft.rows = settings.copies


@stage(version=1)
def lasting(settings: WriteSettings, draft: Draft) -> None:
    """Goes on from what it finds in its scratch."""
    draft.facts["found"] = sorted(path.name for path in draft.scratch.iterdir())
    for name in "abc":
        (draft.scratch / name).write_text(settings.text)


@stage(version=1)
def join(parts: list[Artifact], settings: WriteSettings, draft: Draft) -> None:
    text = "".join(part.file("data.txt").read_text() for part in parts)
    (draft.path / "data.txt").write_text(text)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_build_makes_a_readable_folder_and_finds_it_again(store: Store) -> None:
    made = build(write, store, recipe="mill", settings=WriteSettings(copies=3))
    assert made.path.parent == store.root / "artifacts" / "write"
    assert made.path.name == f"mill-{made.fingerprint[:8]}"
    assert made.file("data.txt").read_text() == "waterwaterwater"
    assert made.manifest.rows == 3
    assert store.find("write", made.fingerprint) == made


def test_a_second_build_reuses_the_first_whatever_the_recipe_is_called(store: Store) -> None:
    first = build(write, store, recipe="mill", settings=WriteSettings())
    again = build(write, store, recipe="other", settings=WriteSettings())
    assert again == first


def test_fingerprint_covers_settings_inputs_and_version_and_nothing_else(store: Store) -> None:
    def fingerprint(copies: int, upstream: str, recipe: str) -> str:
        literals = {"settings": WriteSettings(copies=copies)}
        return specify(join, recipe, {"parts": [upstream]}, literals).fingerprint

    base = fingerprint(1, "a", "mill")
    assert base == fingerprint(1, "a", "another-name")
    assert len({base, fingerprint(2, "a", "mill"), fingerprint(1, "b", "mill")}) == 3


def test_lists_of_inputs(store: Store) -> None:
    parts = [build(write, store, settings=WriteSettings(text=t)) for t in "ab"]
    joined = build(join, store, parts=parts, settings=WriteSettings())
    assert joined.file("data.txt").read_text() == "ab"
    assert [a.manifest.stage for a in store.lineage(joined)] == ["join", "write", "write"]


def test_a_failing_stage_leaves_nothing_under_the_final_name(store: Store) -> None:
    @stage(version=1)
    def fails(settings: WriteSettings, draft: Draft) -> None:
        (draft.path / "half.txt").write_text("half")
        raise RuntimeError("no water")

    with pytest.raises(RuntimeError, match="no water"):
        build(fails, store, settings=WriteSettings())
    assert store.artifacts() == []


def test_forced_build_replaces_the_artifact(store: Store) -> None:
    first = build(write, store, settings=WriteSettings())
    second = build(write, store, settings=WriteSettings(), force=True)
    assert second.fingerprint == first.fingerprint
    assert second.manifest.created > first.manifest.created


def test_a_kill_while_scratch_is_removed_leaves_none_of_it_to_go_on_from(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of it would tell a forced build of work whose other part is gone."""
    unlink = os.unlink

    def killed(path: str, **options: Any) -> None:
        if path == "b":
            raise KeyboardInterrupt
        unlink(path, **options)

    monkeypatch.setattr(os, "unlink", killed)
    with pytest.raises(KeyboardInterrupt):
        build(lasting, store, settings=WriteSettings())
    monkeypatch.undo()
    made = build(lasting, store, settings=WriteSettings(), force=True)
    assert made.manifest.facts == {"found": []} and list(store.root.glob("work/*")) == []


def test_an_unbalanced_ledger_is_refused(store: Store) -> None:
    @stage(version=1)
    def loses_a_row(settings: WriteSettings, draft: Draft) -> None:
        draft.ledger = Ledger(**{"in": 3, "out": 1, "rejects": {"short": 1}})

    with pytest.raises(AssertionError, match="does not balance"):
        build(loses_a_row, store, settings=WriteSettings())


@pytest.mark.parametrize("offset", [0, 17, BLOCK_BYTES + 3])
def test_a_flipped_bit_is_found_and_placed(store: Store, offset: int) -> None:
    made = build(write, store, settings=WriteSettings(text="x" * (BLOCK_BYTES + 100)))
    assert faults(made) == []
    data = bytearray((made.path / "data.txt").read_bytes())
    data[offset] ^= 1
    (made.path / "data.txt").write_bytes(data)
    block = offset // BLOCK_BYTES
    (found,) = faults(made)
    assert f"bytes {block * BLOCK_BYTES} to" in found


def test_missing_short_and_extra_files_are_named(store: Store) -> None:
    made = build(write, store, settings=WriteSettings())
    (made.path / "extra.txt").write_text("?")
    assert [f for f in faults(made) if "not in the manifest" in f]
    (made.path / "data.txt").write_text("wat")
    assert any("3 bytes, expected 5" in f for f in faults(made))
    with pytest.raises(BadInput, match="--rebuild write"):
        made.file("data.txt")
    (made.path / "data.txt").unlink()
    assert any("missing" in f for f in faults(made))


def test_get_by_stage_name_folder_and_fingerprint(store: Store) -> None:
    made = build(write, store, settings=WriteSettings())
    for name in ("write", made.name, made.fingerprint[:10], str(made.path)):
        assert store.get(name) == made
    with pytest.raises(BadInput, match="headrace ls"):
        store.get("nothing")
    with pytest.raises(BadInput, match=r"'wirte'; did you mean 'write'\? `headrace"):
        store.get("wirte")


def test_manifest_is_plain_json_with_block_hashes(store: Store) -> None:
    made = build(write, store, settings=WriteSettings())
    manifest = json.loads((made.path / "artifact.json").read_text())
    assert manifest["files"]["data.txt"]["size"] == 5
    assert len(manifest["files"]["data.txt"]["blocks"][0]) == 64


def test_the_manifest_s_hash_is_that_of_the_lines_after_it(store: Store) -> None:
    made = build(write, store, settings=WriteSettings())
    text = (made.path / MANIFEST).read_bytes()
    lines = text.split(b"\n", 2)[2]
    assert json.loads(text)["sha256"] == hashlib.sha256(lines).hexdigest()


def test_the_bits_of_a_manifest_are_watched(store: Store) -> None:
    made = build(write, store, settings=WriteSettings())
    path = made.path / MANIFEST
    sound = path.read_bytes()
    for bit in range(0, 8 * len(sound), 7):  # nearly every byte, and each of the eight places
        changed = bytearray(sound)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        with pytest.raises(BadInput, match=r"artifact\.json cannot be read: .*--rebuild write"):
            Artifact.load(made.path)
    path.write_bytes(sound)
    assert Artifact.load(made.path) == made


@pytest.mark.parametrize("cut", [0, 1, 50, 100])
def test_a_cut_manifest_is_not_found_and_built_again(store: Store, cut: int) -> None:
    made = build(write, store, settings=WriteSettings())
    sound = (made.path / MANIFEST).read_bytes()
    (made.path / MANIFEST).write_bytes(sound[:cut])
    assert store.find("write", made.fingerprint) is None
    assert store.artifacts() == []
    again = build(write, store, settings=WriteSettings())
    assert faults(again) == [] and again.manifest.files == made.manifest.files


def test_a_manifest_keeps_keys_of_another_version(store: Store) -> None:
    made = build(write, store, settings=WriteSettings())
    values = made.manifest.model_dump(by_alias=True) | {"weather": "rain"}
    values["files"]["data.txt"]["colour"] = "blue"
    (made.path / MANIFEST).write_text(Manifest.model_validate(values).sealed())
    found = Artifact.load(made.path)
    assert faults(found) == []
    kept = Manifest.unsealed(found.manifest.sealed().encode()).model_dump()
    assert kept["weather"] == "rain" and kept["files"]["data.txt"]["colour"] == "blue"


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda path: path.unlink(), "its data.txt is missing, its manifest says 5 bytes"),
        (lambda path: path.write_text("wat"), "its data.txt has 3 bytes, its manifest says 5"),
        (lambda path: (path.parent / MANIFEST).unlink(), "its artifact.json is damaged"),
    ],
)
def test_a_damaged_artifact_is_not_found_and_is_replaced_whole(
    store: Store, damage: Callable[[Path], object], why: str
) -> None:
    made = build(write, store, settings=WriteSettings())
    damage(made.path / "data.txt")
    found = store.catalogue().find("write", made.fingerprint)
    assert found.artifact is None and found.damage.startswith(why)
    again = build(write, store, settings=WriteSettings())
    assert again.path == made.path and faults(again) == []
    assert not list(made.path.parent.glob(".*"))


def test_of_two_with_the_same_content_the_whole_one_is_found(store: Store) -> None:
    first = build(write, store, recipe="mill", settings=WriteSettings())
    second = build(write, store, recipe="other", settings=WriteSettings(), force=True)
    assert store.find("write", first.fingerprint) == second
    second.file("data.txt").unlink()
    assert store.find("write", first.fingerprint) == first


def test_a_file_is_proved_before_it_is_read(store: Store) -> None:
    made = build(write, store, settings=WriteSettings())
    (made.path / "data.txt").write_text("waxer")
    for read in (lambda: made.file("data.txt"), made.folder, lambda: made.read_json("data.txt")):
        with pytest.raises(BadInput, match=r"data\.txt: bytes 0 to 5 changed.*--rebuild write"):
            read()


def test_a_file_that_the_manifest_does_not_name_is_named(store: Store) -> None:
    made = build(write, store, settings=WriteSettings())
    (made.path / "more.txt").write_text("?")
    with pytest.raises(BadInput, match=r"more\.txt is not in the manifest of write/"):
        made.files("*.txt")
    assert [file.path.name for file in made.files("data.*")] == ["data.txt"]


def test_an_artifact_under_another_s_name_is_misplaced(store: Store) -> None:
    made = build(write, store, settings=WriteSettings())
    assert misplaced(made) == []
    moved = made.path.rename(made.path.with_name("test-00000000"))
    assert "not what its name says" in misplaced(Artifact.load(moved))[0]


def _killed_writers(root: Path, *options: str) -> Iterator[tuple[Store, list[Artifact]]]:
    """Each writer's store, and what was whole in it when the writer had been killed."""
    command = [sys.executable, "-m", "tests.cluster.killed_writer", str(root), *options]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert int(ran.stdout) > 8
    for point in range(1, int(ran.stdout) + 1):
        store = Store(root / str(point))
        left, damaged = store.survey()
        assert not damaged and all(faults(artifact) == [] for artifact in left)
        yield store, left


def test_killed_at_every_sync_and_rename_the_artifact_is_complete_or_absent(tmp_path: Path) -> None:
    """A crash-point sweep: kill -9 at each durability call in turn, then look, then finish."""
    seen = set()
    for store, left in _killed_writers(tmp_path):
        seen.add(len(left))
        assert faults(build(pour, store, settings=Nothing())) == []
        assert len(store.artifacts()) == 1
    assert seen == {0, 1}


def test_a_rebuild_killed_at_any_point_leaves_the_old_the_new_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same sweep where an artifact is replaced: every removal of a file counts as well."""
    seen = set()
    for store, left in _killed_writers(tmp_path, "force"):
        seen.add(len(left))
        made = build(pour, store, settings=Nothing())
        assert faults(made) == [] and set(made.manifest.files) == {"a.txt", "b.txt"}
        assert store.artifacts() == [made]
        monkeypatch.setenv("HEADRACE_HOME", str(store.root))
        assert str(made.path) in collect()["removed"]
        assert not list(store.root.glob("artifacts/*/*"))
    assert seen == {0, 1}
