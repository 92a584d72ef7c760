"""Shared artifacts through object storage: manifest last, first writer wins, damage refused."""

import os
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cluster.errors import BadInput, MissingExtra
from cluster.node_cache import release
from cluster.object_store import ObjectStore
from cluster.settings import Settings
from cluster.stage import build, stage
from cluster.store import Draft, Store
from flows.plan.dag import Dag
from flows.plan.estimate import estimate
from flows.recipe import load
from tasks.data.reading.stage import ReadSettings, read


class Text(Settings):
    text: str = "water"


@stage(version=1)
def pour(settings: Text, draft: Draft) -> None:
    (draft.path / "deep").mkdir()
    (draft.path / "deep" / "data.txt").write_text(settings.text)


@stage(version=1)
def pour_two(settings: Text, draft: Draft) -> None:
    for name in ("one.txt", "two.txt"):
        (draft.path / name).write_text(settings.text)


@stage(version=1, name="pour")
def pour_wine(settings: Text, draft: Draft) -> None:
    (draft.path / "deep").mkdir()
    (draft.path / "deep" / "data.txt").write_text("wine")


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADRACE_STORE", f"file://{tmp_path}/bucket")
    return tmp_path / "bucket"


def test_another_machine_finds_what_the_first_one_built(tmp_path: Path, bucket: Path) -> None:
    made = build(pour, Store(tmp_path / "one"), settings=Text())
    found = Store(tmp_path / "two").find("pour", made.fingerprint)
    assert found and found.path.is_relative_to(tmp_path / "two")
    assert found.file("deep/data.txt").read_text() == "water"


def test_a_missing_package_is_named_by_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(url: str, **_: object) -> None:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr("fsspec.core.url_to_fs", absent)
    with pytest.raises(MissingExtra, match=r"HEADRACE_STORE=s3://b.*pip install 'headrace\[s3\]'"):
        ObjectStore("s3://b")


def test_without_its_manifest_nothing_is_there(tmp_path: Path, bucket: Path) -> None:
    made = build(pour, Store(tmp_path / "one"), settings=Text())
    (bucket / made.name / "artifact.json").unlink()
    assert Store(tmp_path / "two").find("pour", made.fingerprint) is None


def test_the_first_writer_wins(tmp_path: Path, bucket: Path) -> None:
    made = build(pour, Store(tmp_path / "one"), settings=Text())
    before = (bucket / made.name / "artifact.json").read_bytes()
    again = build(pour, Store(tmp_path / "one"), settings=Text(), force=True)
    ObjectStore(f"file://{bucket}").push(again.name, again.path)
    assert (bucket / made.name / "artifact.json").read_bytes() == before


def _flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


@pytest.mark.parametrize("fault", ["flipped", "gone", "manifest flipped", "manifest of old"])
def test_damage_in_the_bucket_is_named_built_again_and_replaced(
    tmp_path: Path, bucket: Path, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    made = build(pour, Store(tmp_path / "one"), settings=Text())
    data, manifest = (bucket / made.name / name for name in ("deep/data.txt", "artifact.json"))
    if fault == "flipped":
        _flip(data)
    elif fault == "gone":
        data.unlink()
    elif fault == "manifest flipped":
        _flip(manifest)
    else:
        manifest.write_text(made.manifest.model_dump_json())
    named = "artifact.json" if "manifest" in fault else "deep/data.txt"
    told = f"damaged in object storage: {bucket / made.name / named}"
    found = Store(tmp_path / "two").find("pour", made.fingerprint)
    if found is None:
        assert "manifest" in fault and told in caplog.text
    else:
        with pytest.raises(BadInput, match=f"{told}.*the same command"):
            found.file("deep/data.txt")
        assert Store(tmp_path / "two").find("pour", made.fingerprint) is None
    assert not list((tmp_path / "two").rglob("data.txt"))
    again = build(pour, Store(tmp_path / "two"), settings=Text())
    third = Store(tmp_path / "three").find("pour", made.fingerprint)
    assert third is not None and third.manifest == again.manifest
    assert third.file("deep/data.txt").read_text() == "water"


def test_a_damaged_copy_here_is_fetched_again(tmp_path: Path, bucket: Path) -> None:
    made = build(pour, Store(tmp_path / "one"), settings=Text())
    made.file("deep/data.txt").unlink()
    found = Store(tmp_path / "one").find("pour", made.fingerprint)
    assert found is not None and found.file("deep/data.txt").read_text() == "water"


def test_only_the_files_asked_for_are_fetched_and_each_once(
    tmp_path: Path, bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = build(pour_two, Store(tmp_path / "one"), settings=Text())
    got: list[str] = []
    get = ObjectStore.get

    def counted(self: ObjectStore, name: str, path: Path) -> None:
        got.append(name)
        time.sleep(0.2)  # so that the others come meanwhile
        get(self, name, path)

    monkeypatch.setattr(ObjectStore, "get", counted)
    store = Store(tmp_path / "two")
    with ThreadPoolExecutor(4) as pool:
        texts = pool.map(lambda _: store.open(made.name).file("one.txt").read_text(), range(4))
    assert list(texts) == ["water"] * 4 and got == [f"{made.name}/one.txt"]


def test_a_cached_file_that_was_damaged_is_fetched_again(tmp_path: Path, bucket: Path) -> None:
    made = build(pour, Store(tmp_path / "one"), settings=Text())
    path = Store(tmp_path / "two").open(made.name).file("deep/data.txt")
    _flip(path)
    assert Store(tmp_path / "two").open(made.name).file("deep/data.txt").read_text() == "water"


def test_beyond_the_budget_the_longest_unused_goes_and_nothing_in_use(
    tmp_path: Path, bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [build(pour, Store(tmp_path / "one"), settings=Text(text=c * 100)) for c in "abcd"]
    monkeypatch.setenv("HEADRACE_CACHE_BYTES", "250")
    paths = []
    for artifact in made[:3]:  # a, b, c: all in use
        paths.append(Store(tmp_path / "two").open(artifact.name).file("deep/data.txt"))
        os.utime(paths[-1], (len(paths), len(paths)))
    assert all(path.exists() for path in paths)
    release()
    Store(tmp_path / "two").open(made[0].name).file("deep/data.txt")  # now b is the oldest
    Store(tmp_path / "two").open(made[3].name).file("deep/data.txt")
    assert [path.exists() for path in paths] == [True, False, False]
    assert Store(tmp_path / "two").open(made[1].name).file("deep/data.txt").read_text() == "b" * 100
    release()


def test_what_another_process_uses_is_not_removed(
    tmp_path: Path, bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [build(pour, Store(tmp_path / "one"), settings=Text(text=c * 100)) for c in "ab"]
    monkeypatch.setenv("HEADRACE_CACHE_BYTES", "150")
    path = Store(tmp_path / "two").open(made[0].name).file("deep/data.txt")
    release()
    folder = path.parents[1]
    with subprocess.Popen(["flock", "-s", folder, "sleep", "100"]) as other:
        while subprocess.run(["flock", "-xn", folder, "true"]).returncode == 0:
            time.sleep(0.05)
        Store(tmp_path / "two").open(made[1].name).file("deep/data.txt")
        assert path.exists()
        other.kill()


def test_one_that_was_replaced_is_not_read_from_the_cache(tmp_path: Path, bucket: Path) -> None:
    made = build(pour, Store(tmp_path / "one"), settings=Text())
    Store(tmp_path / "two").open(made.name).file("deep/data.txt")
    shutil.rmtree(bucket)
    shutil.rmtree(made.path)
    again = build(pour_wine, Store(tmp_path / "one"), settings=Text())
    assert again.name == made.name
    assert Store(tmp_path / "two").open(made.name).file("deep/data.txt").read_text() == "wine"


def test_a_plan_reads_manifests_and_fetches_nothing(
    tmp_path: Path, bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = build(pour, Store(tmp_path / "one"), settings=Text())
    monkeypatch.setattr(ObjectStore, "get", None)
    dag = Dag("test", Store(tmp_path / "two"))
    node = dag.add(pour, settings=Text())
    assert node.found is not None and node.found.manifest == made.manifest
    assert node.why == "unchanged"
    assert not (tmp_path / "two").exists()


def test_each_folder_of_a_plan_is_listed_once(
    tmp_path: Path, bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(pour, Store(tmp_path / "one"), settings=Text())
    listed: list[str] = []
    names = ObjectStore.names

    def counted(self: ObjectStore, stage: str) -> list[str]:
        listed.append(stage)
        return names(self, stage)

    monkeypatch.setattr(ObjectStore, "names", counted)
    dag = Dag("test", Store(tmp_path / "two"))
    for number in range(50):
        dag.add(pour, label=str(number), settings=Text(text=str(number)))
    assert listed == ["pour"]


def test_an_unknown_scheme_says_what_to_install() -> None:
    with pytest.raises(BadInput, match="HEADRACE_STORE=nosuch://x"):
        ObjectStore("nosuch://x")


def test_a_store_that_depends_on_the_working_folder_is_refused() -> None:
    with pytest.raises(
        BadInput, match=r"HEADRACE_STORE=bucket/prefix is no URL.*file:///.*/bucket"
    ):
        ObjectStore("bucket/prefix")


def test_the_plan_of_a_recipe_fetches_nothing(
    tmp_path: Path, bucket: Path, fresh_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text.txt").write_text("Water runs down to the mill.")
    recipe = load("smoke", [f"sources=[{tmp_path}/text.txt]"])
    reading = ReadSettings(sources=recipe.sources, **dict(recipe.read))
    build(read, Store(tmp_path / "one"), settings=reading)
    monkeypatch.setattr(ObjectStore, "get", None)
    found = {stage["name"]: stage["why"] for stage in estimate(recipe)["stages"]}
    assert found["read"] == "unchanged"
    assert not (fresh_home / "artifacts").exists()
