"""Sharing artifacts through object storage: manifest last, first writer wins, damage refused."""

from pathlib import Path

import pytest

from cluster.errors import BadInput
from cluster.object_store import ObjectStore
from cluster.settings import Settings
from cluster.stage import build, stage
from cluster.store import Draft, Store


class Text(Settings):
    text: str = "water"


@stage(version=1)
def pour(settings: Text, draft: Draft) -> None:
    (draft.path / "deep").mkdir()
    (draft.path / "deep" / "data.txt").write_text(settings.text)


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADRACE_STORE", f"file://{tmp_path}/bucket")
    return tmp_path / "bucket"


def test_another_machine_finds_what_the_first_one_built(tmp_path: Path, bucket: Path) -> None:
    made = build(pour, Store(tmp_path / "one"), settings=Text())
    found = Store(tmp_path / "two").find("pour", made.fingerprint)
    assert found and found.path.is_relative_to(tmp_path / "two")
    assert found.file("deep/data.txt").read_text() == "water"


def test_without_its_manifest_nothing_is_there(tmp_path: Path, bucket: Path) -> None:
    made = build(pour, Store(tmp_path / "one"), settings=Text())
    (bucket / made.name / "artifact.json").unlink()
    assert Store(tmp_path / "two").find("pour", made.fingerprint) is None


def test_the_first_writer_wins(tmp_path: Path, bucket: Path) -> None:
    made = build(pour, Store(tmp_path / "one"), settings=Text())
    before = (bucket / made.name / "artifact.json").read_bytes()
    again = build(pour, Store(tmp_path / "one"), settings=Text(), force=True)
    ObjectStore(f"file://{bucket}").push(again)
    assert (bucket / made.name / "artifact.json").read_bytes() == before


def test_damage_in_the_bucket_is_refused_by_name(tmp_path: Path, bucket: Path) -> None:
    made = build(pour, Store(tmp_path / "one"), settings=Text())
    (bucket / made.name / "deep" / "data.txt").write_text("waxer")
    with pytest.raises(BadInput, match=r"deep/data\.txt.*changed"):
        Store(tmp_path / "two").find("pour", made.fingerprint)
    assert not list((tmp_path / "two").rglob("data.txt"))


def test_an_unknown_scheme_says_what_to_install() -> None:
    with pytest.raises(BadInput, match="HEADRACE_STORE=nosuch://x"):
        ObjectStore("nosuch://x")
