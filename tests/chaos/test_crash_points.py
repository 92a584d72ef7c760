"""Stages killed where a file gets its name, is synced or removed end, run again, as if never."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

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


def test_stages_of_data_killed_at_some_points_end_as_if_never(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for module in MODULES:
        shutil.copy(Path(sysconfig.get_path("stdlib")) / f"{module}.py", tmp_path / "in")
    sources = f'[{{path: "{tmp_path}/in"}}]'
    said = sweep(
        tmp_path,
        *("--goal", "data", "--first", "4", "--every", "40"),
        **{"sources": sources, "shards.heldout_share": "0.3"},
    )
    for stage in ("read", "filter", "dedup", "redact", "tokenizer", "shards", "report"):
        assert re.search(rf"^{stage} built: [12] points, 0 wrong$", said, re.MULTILINE), said


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_all_stages_killed_at_many_points_end_as_if_never(tmp_path: Path) -> None:
    """A checkpoint at each step, so that of a training there are hundreds."""
    assert ", 0 wrong" in sweep(tmp_path, "--every", "7", **LESS).splitlines()[-1]
