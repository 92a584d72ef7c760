"""Stages killed where a file gets its name, is synced or removed end, run again, as if never."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.chaos.crash_points import POINTS, kill_at, spread

ROOT = Path(__file__).parents[2]
MODULES = ("textwrap", "string", "shlex", "queue", "sched", "heapq", "bisect", "copy", "types")
LESS = {
    "pretrain.tokens": "2000",
    "pretrain.batch_tokens": "256",
    "instruct.tokens": "2000",
}


def sweep(folder: Path, *options: str, **changes: str) -> str:
    """What the sweep says of the points at which it killed; all of them were made good."""
    command = [sys.executable, "-m", "tests.chaos.crash_points", str(folder), *options]
    command += [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    variables = os.environ | {"OMP_NUM_THREADS": "1"}
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=variables)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-4000:]
    return ran.stdout


def test_stages_killed_at_renames_end_as_if_never(tmp_path: Path) -> None:
    """Where an artifact that is built again gets its name, or a checkpoint of a training."""
    (tmp_path / "in").mkdir()
    for module in MODULES:
        shutil.copy(Path(sysconfig.get_path("stdlib")) / f"{module}.py", tmp_path / "in")
    sources = f'[{{path: "{tmp_path}/in"}}]'
    said = sweep(
        tmp_path,
        *("--goal", "pretrain", "--rebuilt", "--each", "1", "--like", r"^rename \.(smoke|step)"),
        **{"sources": sources, "shards.heldout_share": "0.3", "model.depth": "1"},
        **{"pretrain.tokens": "768", "pretrain.batch_tokens": "256"},
    )
    points = {"read": 1, "filter": 1, "dedup": 1, "redact": 1, "tokenizer": 1, "shards": 1}
    for stage, count in (points | {"pretrain": 2, "report": 1}).items():
        assert f"\n{stage} rebuilt: {count} points, 0 wrong\n" in f"\n{said}", said


def test_kinds_of_points_are_names_without_numbers_and_spread_from_first_to_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in POINTS:
        monkeypatch.setattr(os, name, getattr(os, name))  # put back in the end
    done = kill_at(0)
    for step in (7, 12):
        with (tmp_path / f".step-{step:08d}").open("w") as file:
            os.fsync(file.fileno())
        (tmp_path / f".step-{step:08d}").rename(tmp_path / f"step-{step:08d}")
    assert done == ["fsync .step-#", "rename .step-#"] * 2
    assert spread([1, 2, 5, 8, 9], 3) == [1, 5, 9] and spread([4], 1) == [4]
    assert spread([1, 2, 5], 1) == [1] and spread([1, 2, 5], None) == [1, 2, 5]


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_all_stages_killed_at_every_kind_of_point_end_as_if_never(tmp_path: Path) -> None:
    """A checkpoint at each step, so that of a training there are hundreds of points."""
    assert ", 0 wrong" in sweep(tmp_path, "--each", "3", **LESS).splitlines()[-1]
