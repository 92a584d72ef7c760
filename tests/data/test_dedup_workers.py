"""Any number of workers, also when one is killed: the same artifact."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from cluster.placement import Placement
from cluster.stage import build
from cluster.store import Store
from tasks.data import blocks
from tasks.data.deduplication import candidates, phases, search
from tasks.data.deduplication.stage import dedup
from tasks.data.reading import intake
from tasks.data.reading.stage import ReadSettings, read
from tests.data.deduplication.documents import PARTITION_BYTES, SETTINGS, document, edited


@pytest.fixture(scope="module")
def store(ray_session, tmp_path_factory):
    """One for all: what is deduplicated again is forced, or its artifact removed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setattr(intake, "BLOCK_BYTES", 1)
        patch.setattr(candidates, "PARTITION_BYTES", PARTITION_BYTES)
        for module in (blocks, search):
            patch.setattr(module, "SMALL_BYTES", 0)
        yield Store()


@pytest.fixture(scope="module")
def artifact(store, tmp_path_factory):
    """Eight blocks with duplicates within and across, small partitions, workers for little text."""
    folder = tmp_path_factory.mktemp("in")
    base = [document(i) for i in range(200)]
    texts = base + [edited(t, 1 + i % 9, seed=i) for i, t in enumerate(base)] + base[:40]
    for number in range(8):
        rows = "".join(json.dumps({"text": t}) + "\n" for t in texts[number::8])
        (folder / f"{number}.jsonl").write_text(rows)
    return build(read, store, settings=ReadSettings(sources=({"path": str(folder)},)))


@pytest.fixture(scope="module")
def expected(store, artifact):
    """What one process makes of it."""
    return run(store, artifact, 1)


def run(store, artifact, at_once, force=True):
    made = build(
        dedup,
        store,
        text=artifact,
        settings=SETTINGS,
        placement=Placement(data_workers=at_once),
        force=force,
    )
    return made.manifest.files, made.manifest.facts, made.manifest.ledger


def test_any_number_of_workers_gives_the_same_artifact(store, artifact, expected):
    assert [run(store, artifact, at_once) for at_once in (2, 4)] == [expected] * 2
    assert expected[2].rejects["near_duplicate"] > 50
    assert expected[1]["cut"][1]["count"] > 10


@pytest.mark.parametrize(
    "step",
    ["signatures", *(pytest.param(s, marks=pytest.mark.slow) for s in ("packed", "verdicts"))],
)
def test_a_worker_killed_in_a_step_changes_nothing(store, artifact, expected, step):
    killed = []

    def kill():
        while not list(store.root.glob(f"work/dedup-*/{step}/[!.]*/*.arrow")):
            time.sleep(0.002)
        while not killed:
            for process in psutil.Process().children(recursive=True):
                if process.name().startswith("ray::_call"):
                    os.kill(process.pid, signal.SIGKILL)
                    killed.append(process.pid)
                    return

    watcher = threading.Thread(target=kill, daemon=True)
    watcher.start()
    assert run(store, artifact, 2) == expected
    watcher.join(1)
    assert killed


@pytest.mark.parametrize("kills", [(20,), pytest.param((1, 12, 20), marks=pytest.mark.slow)])
def test_the_whole_stage_killed_at_any_file_ends_the_same(store, artifact, expected, kills):
    """SIGKILL before the first, a middle and a late file; then the same command once more. (Between
    any two steps, in one process: `test_dedup.py`, by default.)
    """
    shutil.rmtree(store.root / "artifacts" / "dedup")
    command = [sys.executable, str(Path(__file__).with_name("dedup_driver.py")), str(artifact.path)]
    environment = os.environ | {"PYTHONPATH": str(Path.cwd()), "HEADRACE_HOME": str(store.root)}
    for last in kills:
        ended = subprocess.run([*command, str(last)], env=environment, check=False)
        assert ended.returncode == -signal.SIGKILL
        assert not list((store.root / "artifacts" / "dedup").glob("[!.]*"))
    kept = list(store.root.glob("work/dedup-*/signatures/[!.]*/*.arrow"))
    assert len(kept) == 8  # not done again
    resumed = build(dedup, store, text=artifact, settings=SETTINGS).manifest
    assert (resumed.files, resumed.facts, resumed.ledger) == expected


def test_a_disk_that_is_full_in_a_step_is_named_and_the_rerun_goes_on(
    store, artifact, expected, monkeypatch
):
    shutil.rmtree(store.root / "artifacts" / "dedup")
    driver = str(Path(__file__).with_name("dedup_driver.py"))
    ended = subprocess.run(
        [sys.executable, driver, str(artifact.path), "0", "40000"],
        env=os.environ | {"PYTHONPATH": str(Path.cwd()), "HEADRACE_HOME": str(store.root)},
        capture_output=True,
        text=True,
        check=True,
    )
    (work,) = store.root.glob("work/dedup-*")
    assert re.fullmatch(
        rf"no space left in {work}/packed, which needs about [\d,]+ bytes more: .*\. Free some, "
        r"or set HEADRACE_HOME to a larger disk, and run again: what is finished is kept",
        ended.stdout.strip(),
    ), ended.stdout + ended.stderr
    assert len(list(work.glob("signatures/[!.]*/*.arrow"))) == 8 and not list(work.glob("*/.*"))
    saved, honest = [], phases.save
    monkeypatch.setattr(phases, "save", lambda path, t: (saved.append(path), honest(path, t)))
    assert run(store, artifact, 1, force=False) == expected
    assert {path.parent.parent.name for path in saved} > {"packed", "verdicts"}
    assert "signatures" not in {path.parent.parent.name for path in saved}
