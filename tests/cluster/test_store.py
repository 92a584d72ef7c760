"""The artifact store: complete or absent, found by fingerprint, damage named."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from cluster.artifact import BLOCK_BYTES, Artifact, Ledger, faults
from cluster.errors import BadInput
from cluster.settings import Settings
from cluster.stage import build, specify, stage
from cluster.store import Draft, Store


class WriteSettings(Settings):
    text: str = "water"
    copies: int = 1


@stage(version=1)
def write(settings: WriteSettings, draft: Draft) -> None:
    (draft.path / "data.txt").write_text(settings.text * settings.copies)
    draft.rows = settings.copies


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


def test_manifest_is_plain_json_with_block_hashes(store: Store) -> None:
    made = build(write, store, settings=WriteSettings())
    manifest = json.loads((made.path / "artifact.json").read_text())
    assert manifest["files"]["data.txt"]["size"] == 5
    assert len(manifest["files"]["data.txt"]["blocks"][0]) == 64


KILLED_WRITER = textwrap.dedent(
    """
    import os, sys
    from pathlib import Path
    from cluster.store import Store
    from cluster.settings import Settings
    from cluster.stage import build, stage

    calls = 0

    def killing(real):
        def call(*arguments, **options):
            global calls
            calls += 1
            if calls == int(sys.argv[2]):
                os.kill(os.getpid(), 9)
            return real(*arguments, **options)
        return call

    os.fsync = killing(os.fsync)
    Path.rename = killing(Path.rename)
    Path.replace = killing(Path.replace)

    @stage(version=1)
    def pour(settings, draft):
        (draft.path / "a.txt").write_text("a" * 100)
        (draft.path / "b.txt").write_text("b" * 100)

    class Nothing(Settings):
        pass

    build(pour, Store(Path(sys.argv[1])), settings=Nothing())
    """
)


def test_killed_at_every_sync_and_rename_the_artifact_is_complete_or_absent(tmp_path: Path) -> None:
    """A crash-point sweep: kill -9 at each durability call in turn, then look, then finish."""
    script = tmp_path / "writer.py"
    script.write_text(KILLED_WRITER)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    for point in range(1, 20):
        root = tmp_path / str(point)
        command = [sys.executable, str(script), str(root)]
        killed = subprocess.run([*command, str(point)], env=environment)
        survivors = Store(root).artifacts() if root.exists() else []
        assert all(faults(artifact) == [] for artifact in survivors)
        if killed.returncode == 0:
            break
        assert killed.returncode == -signal.SIGKILL
        assert subprocess.run([*command, "0"], env=environment).returncode == 0
        (artifact,) = Store(root).artifacts()
        assert faults(artifact) == []
    else:
        pytest.fail("the writer never ran to its end")
    assert point > 4
