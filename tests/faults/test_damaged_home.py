"""Damaged manifests, records and files in a home: every command names them, none breaks on them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.manifest import MANIFEST, Manifest
from cluster.runs import RunRecord, StageRecord
from cluster.settings import Settings
from cluster.stage import build, stage
from cluster.store import Draft, Store
from flows.cli import app
from flows.plan.dag import Dag
from tasks.data.filtering.settings import FilterSettings
from tasks.data.filtering.stage import filter_text
from tasks.data.reading.stage import ReadSettings, read
from tasks.tokens.vocabulary.settings import TokenizerSettings
from tasks.tokens.vocabulary.stage import train_tokenizer

Command = Callable[..., dict[str, Any]]


class Text(Settings):
    text: str = "water"


@stage(version=1)
def pour(settings: Text, draft: Draft) -> None:
    (draft.path / "data.txt").write_text(settings.text)


@stage(version=1)
def boil(water: Artifact, settings: Text, draft: Draft) -> None:
    (draft.path / "tea.txt").write_text(water.file("data.txt").read_text())


@pytest.fixture
def command(fresh_home: Path, capfd: pytest.CaptureFixture[str]) -> Command:
    def run(*arguments: str, fails: str | None = None) -> dict[str, Any]:
        if fails is None:
            app([*arguments, "--json"], standalone_mode=False)
        else:
            with pytest.raises(BadInput, match=fails):
                app([*arguments, "--json"], standalone_mode=False)
        found: dict[str, Any] = json.loads(capfd.readouterr().out)
        return found

    return run


@pytest.fixture
def used(fresh_home: Path) -> tuple[Artifact, Artifact]:
    """An artifact, and one that a kept run made from it."""
    store = Store(fresh_home)
    water = build(pour, store, settings=Text())
    tea = build(boil, store, water=water, settings=Text())
    about = StageRecord(
        name="boil", stage="boil", fingerprint=tea.fingerprint, state="built", why=""
    )
    record = RunRecord.start({"name": "test"}, "all")
    record.model_copy(update={"status": "completed", "stages": [about]}).save(fresh_home)
    return water, tea


def cut(artifact: Artifact) -> None:
    path = artifact.path / MANIFEST
    path.write_text(path.read_text()[:100])


def test_verify_counts_what_it_cannot_read(
    command: Command, used: tuple[Artifact, Artifact], fresh_home: Path
) -> None:
    assert command("verify") == {"ok": True, "checked": 2, "records": 1, "bad": {}}
    cut(used[1])
    (fresh_home / "runs" / "empty.json").touch()
    found = command("verify", fails="2 damaged: .*--rebuild boil.*, remove the files under runs/")
    assert set(found["bad"]) == {used[1].name, "runs/empty.json"}
    (used[0].path / MANIFEST).unlink()
    assert set(command("verify", fails="3 damaged")["bad"]) >= {used[0].name}
    command("verify", used[1].name, fails=r"artifact\.json cannot be read.*--rebuild boil")


def test_verify_finds_a_folder_under_another_name(
    command: Command, used: tuple[Artifact, Artifact]
) -> None:
    other = used[0].path.with_name("test-01234567")
    shutil.copytree(used[0].path, other)
    assert set(command("verify", fails="1 damaged")["bad"]) == {"pour/test-01234567"}


def test_a_changed_fact_is_found_by_verify_and_refused(
    command: Command, used: tuple[Artifact, Artifact]
) -> None:
    path = used[0].path / MANIFEST
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values | {"facts": {"eod": 1}}, indent=1))
    assert used[0].name in command("verify", fails="1 damaged")["bad"]
    assert Store().find("pour", used[0].fingerprint) is None


@pytest.mark.parametrize("what", ["manifest", "record"])
def test_gc_keeps_all_artifacts_while_something_cannot_be_read(
    command: Command, used: tuple[Artifact, Artifact], fresh_home: Path, what: str
) -> None:
    unused = build(pour, Store(fresh_home), settings=Text(text="sand"))
    assert command("gc", "--dry-run")["removed"] == [str(unused.path)]
    bad = used[1].path if what == "manifest" else fresh_home / "runs" / "bad.json"
    if what == "manifest":
        cut(used[1])  # it alone says that the first one is needed
    else:
        bad.write_text("{")
    found = command("gc")
    assert found["removed"] == [] and list(found["unreadable"]) == [str(bad)]
    assert unused.path.exists() and used[0].path.exists()


def test_other_commands_name_a_damaged_manifest(
    command: Command, used: tuple[Artifact, Artifact], caplog: pytest.LogCaptureFixture
) -> None:
    cut(used[1])
    assert [a["artifact"] for a in command("ls")["artifacts"]] == [used[0].name]
    assert str(used[1].path / MANIFEST) in caplog.text
    for name in ("show", "lineage"):
        command(name, used[1].name, fails=r"artifact\.json cannot be read")
    assert command("lineage", used[0].name)["nodes"]


def test_a_plan_says_what_is_damaged_and_a_record_stops_nothing(
    used: tuple[Artifact, Artifact], fresh_home: Path
) -> None:
    (fresh_home / "runs" / "empty.json").touch()
    (used[0].path / "data.txt").unlink()
    cut(used[1])
    dag = Dag("test", Store(fresh_home))
    water = dag.add(pour, settings=Text())
    tea = dag.add(boil, water=water, settings=Text())
    assert water.why == "its data.txt is missing, its manifest says 5 bytes"
    assert tea.why == "its artifact.json is damaged"


def test_rows_that_are_missing_are_missed(fresh_home: Path) -> None:
    """A manifest that proves itself and names too few files, as a wrong writer would leave it."""
    folder = fresh_home.parent / "in"
    folder.mkdir(parents=True)
    for name in "ab":
        rows = [json.dumps({"text": f"{name} {n} " + "words of it " * 40}) for n in range(50)]
        (folder / f"{name}.jsonl").write_text("\n".join(rows))
    settings = ReadSettings.model_validate({"sources": [{"path": str(folder)}]})
    text = build(read, Store(fresh_home), settings=settings)
    values = text.manifest.model_dump(by_alias=True) | {"rows": 150}
    (text.path / MANIFEST).write_text(Manifest.model_validate(values).sealed())
    text = Artifact.load(text.path)
    rules = FilterSettings(preset="basic", limits={})
    for function, arguments in (
        (filter_text, {"raw": text, "settings": rules}),
        (train_tokenizer, {"text": text, "settings": TokenizerSettings(vocab_size=300)}),
    ):
        with pytest.raises(BadInput, match=r"has 150 rows, and 100 were read.*--rebuild read"):
            build(function, Store(fresh_home), **arguments)
    shutil.copy(text.path / "text-00000-00000.parquet", text.path / "text-00000-00009.parquet")
    with pytest.raises(BadInput, match=r"text-00000-00009\.parquet is not in the manifest"):
        build(filter_text, Store(fresh_home), raw=text, settings=rules)
