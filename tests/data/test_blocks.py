"""Any number of workers, a kill, a full disk: the same artifact or a clear message."""

import json
import os
import random
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from cluster.errors import BadInput
from cluster.placement import Placement
from cluster.settings import contents
from cluster.stage import build, specify
from cluster.store import Draft
from flows.plan.reasons import changes
from tasks.data import blocks
from tasks.data.filtering.settings import FilterSettings
from tasks.data.filtering.stage import filter_text
from tasks.data.reading import intake
from tasks.data.reading.intake import Intake
from tasks.data.reading.stage import ReadSettings, read

DRIVER = Path(__file__).with_name("blocks_driver.py")
FILES = 6


@pytest.fixture
def folder(tmp_path):
    """Six files of different rows, one of them with a bad row, in blocks of one file."""
    (tmp_path / "in").mkdir()
    rng = random.Random(0)
    for number in range(FILES):
        rows = [{"text": f"{number} {row} {rng.random()}"} for row in range(300)]
        content = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / "in" / f"{number}.jsonl").write_text(content + "{" * (number == 2))
    return tmp_path / "in"


@pytest.fixture
def small_blocks(monkeypatch):
    """Every file is a block."""
    monkeypatch.setattr(intake, "BLOCK_BYTES", 1)


@pytest.fixture
def workers(ray_session, small_blocks, monkeypatch):
    """Workers for however little text."""
    monkeypatch.setattr(blocks, "SMALL_BYTES", 0)


def settings_for(folder):
    return ReadSettings.model_validate({"sources": [{"path": str(folder)}]})


def content(path):
    return {p.name: p.read_bytes() for p in sorted(Path(path).glob("*.parquet"))}


def drive(store, folder, *options):
    """The driver's exit status and what it printed."""
    ended = subprocess.run(
        [sys.executable, str(DRIVER), str(folder), *options],
        env=os.environ
        | {"PYTHONPATH": str(Path.cwd()), "HEADRACE_HOME": str(store.root)}
        | {"PYTHONDONTWRITEBYTECODE": "1"},  # a file limit would cut bytecode short, for good
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.returncode, (ended.stdout or ended.stderr).strip()


def test_any_number_of_workers_gives_the_same_artifact(folder, store, workers):
    made = []
    for at_once in (1, 2, 4):
        built = build(
            read,
            store,
            settings=settings_for(folder),
            placement=Placement(data_workers=at_once),
            force=True,
        )
        facts = {k: v for k, v in built.manifest.facts.items() if k != "sources"}
        made.append((content(built.path), facts, built.manifest.ledger))
    assert made[0] == made[1] == made[2]
    assert made[0][2].identity() == {
        "rows_in": 300 * FILES + 1,
        "rows_out": 300 * FILES,
        "rejects": {"invalid_json": 1},
    }
    assert len(made[0][0]) == 2 * FILES


def test_an_error_of_a_worker_is_shown_as_it_is(folder, store, workers):
    (folder / "3.jsonl.gz").write_bytes(b"no gzip")
    with pytest.raises(BadInput, match=r"3\.jsonl\.gz is damaged: Not a gzipped file"):
        build(read, store, settings=settings_for(folder), placement=Placement(data_workers=2))


def _fail(tried, batches, rows):
    (tried / next(batches)["id"][0].as_py()).touch(exist_ok=False)
    raise KeyError("column")


@pytest.mark.parametrize("at_once", [1, 2])
def test_an_unexpected_error_is_raised_once_and_names_its_file(folder, store, workers, at_once):
    text = build(read, store, settings=settings_for(folder))
    tried = folder / "tried"
    (tried / "in").mkdir(parents=True)
    draft = SimpleNamespace(
        path=folder, scratch=folder, placement=Placement(data_workers=at_once), progress=print
    )
    with pytest.raises(KeyError, match="column") as caught:  # a second try would meet its own file
        blocks.map_text(text, draft, partial(_fail, tried))
    assert list(tried.glob("in/*"))
    notes = {f"while working on {file.path}" for file in text.files("text-*.parquet")}
    assert len(notes.intersection(caught.value.__notes__)) == 1  # of two, either may be first


@pytest.mark.parametrize("finished", (0, 3, FILES - 1))
def test_a_killed_run_goes_on_and_ends_the_same(folder, store, small_blocks, monkeypatch, finished):
    status, _ = drive(store, folder, "--die-after", str(finished))
    assert status == -signal.SIGKILL
    settings = settings_for(folder)
    spec = specify(read, "test", {}, {"settings": settings}, found=contents(settings))
    scratch = store.scratch(spec)
    found = sorted(p.name for p in (scratch / "blocks").glob("[!.]*"))
    assert found == [f"{n:05d}" for n in range(finished)]
    assert len(list((scratch / "blocks").glob(".*"))) == 1  # half a block, under a hidden name

    taken, original = [], Intake.read

    def counted(self, file, license, part):
        taken.append(file.name)
        original(self, file, license, part)

    monkeypatch.setattr(Intake, "read", counted)
    resumed = build(read, store, settings=settings_for(folder))
    assert taken == [f"{n}.jsonl" for n in range(finished, FILES)]
    clean = build(read, store, settings=settings_for(folder), force=True)
    assert content(resumed.path) == content(clean.path)
    assert resumed.manifest.facts == clean.manifest.facts
    assert resumed.manifest.ledger == clean.manifest.ledger


def test_a_full_disk_names_the_folder_and_loses_nothing(folder, store):
    (folder / "4.jsonl").write_text(
        "".join(json.dumps({"text": os.urandom(200).hex()}) + "\n" for _ in range(500))
    )
    status, message = drive(store, folder, "--file-limit", "60000")
    assert status == 0
    assert message.startswith(f"no space left in {store.root / 'work'}{os.sep}read-")
    assert "Free some, or set HEADRACE_HOME to a larger disk, and run again: what is" in message
    assert not list((store.root / "artifacts" / "read").glob("[!.]*"))
    status, path = drive(store, folder)
    assert status == 0, path
    assert len(content(path)) == 2 * FILES


def test_a_changed_source_leaves_no_block_behind(folder, store, small_blocks, monkeypatch):
    original = Intake.read

    def read_then_append(self, file, license, part):
        original(self, file, license, part)
        if file.name == "3.jsonl":
            with file.path.open("a") as more:
                more.write('{"text": "later"}\n')

    monkeypatch.setattr(Intake, "read", read_then_append)
    with pytest.raises(BadInput, match=r"3\.jsonl changed while it was read"):
        build(read, store, settings=settings_for(folder))
    assert not list((store.root / "artifacts" / "read").glob("[!.]*"))
    monkeypatch.setattr(Intake, "read", original)
    assert build(read, store, settings=settings_for(folder)).manifest.rows == 300 * FILES + 1


def test_limits_changed_after_a_kill_leave_nothing_of_the_other_ones(
    folder, store, small_blocks, monkeypatch
):
    text = build(read, store, settings=settings_for(folder))
    some, others = (FilterSettings(limits={"too_short": limit}) for limit in (5, 22))
    publish, published = blocks._publish, []

    def interrupt(temporary, final):
        if len(published) == 3:
            raise KeyboardInterrupt
        publish(temporary, final)
        published.append(final)

    monkeypatch.setattr(blocks, "_publish", interrupt)
    with pytest.raises(KeyboardInterrupt):
        build(filter_text, store, raw=text, settings=some)
    monkeypatch.setattr(blocks, "_publish", publish)
    made = build(filter_text, store, raw=text, settings=others)
    clean = build(filter_text, store, raw=text, settings=others, force=True)
    assert content(made.path) == content(clean.path)
    assert made.manifest.ledger == clean.manifest.ledger
    assert made.manifest.ledger.rejects["too_short"] > 0
    resumed = build(filter_text, store, raw=text, settings=some)
    assert resumed.manifest.ledger.rejects == {}
    wanted = specify(filter_text, "test", {"raw": text.fingerprint}, {"settings": others})
    assert changes(resumed.manifest, wanted) == "limits.too_short 5.0 -> 22.0"


def test_progress_goes_from_nothing_to_all(folder, store, small_blocks, monkeypatch):
    seen = []
    monkeypatch.setattr(Draft, "progress", lambda self, *report: seen.append(report))
    build(read, store, settings=settings_for(folder))
    total = sum(path.stat().st_size for path in folder.iterdir())
    assert seen[0] == (0, total, "bytes")
    assert seen[-1] == (total, total, "bytes")
    assert len(seen) == FILES + 1
