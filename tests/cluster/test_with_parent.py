"""What is started for a process ends with it, however that one ends."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

CHILD = """
import pathlib, signal, sys, time
def end(*_):
    pathlib.Path(sys.argv[1], "ended").touch()
    sys.exit(3)
signal.signal(signal.SIGTERM, end)
pathlib.Path(sys.argv[1], "begun").touch()
time.sleep(60)
"""
WITH = [sys.executable, "-m", "cluster.with_parent", sys.executable, "-c", CHILD]


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline, path.name
        time.sleep(0.02)


def test_a_killed_parent_takes_it_down(tmp_path: Path) -> None:
    code = f"import subprocess; subprocess.run({[*WITH, str(tmp_path)]})"
    parent = subprocess.Popen([sys.executable, "-c", code])
    wait_for(tmp_path / "begun")
    parent.kill()
    parent.wait()
    wait_for(tmp_path / "ended")


@pytest.mark.parametrize("asked", [True, False])
def test_it_ends_when_asked_and_tells_how_the_command_ended(tmp_path: Path, asked: bool) -> None:
    if asked:
        running = subprocess.Popen([*WITH, str(tmp_path)])
        wait_for(tmp_path / "begun")
        running.terminate()
        assert running.wait(timeout=30) == 3
    else:
        command = [*WITH[:3], sys.executable, "-c", "raise SystemExit(5)"]
        assert subprocess.run(command).returncode == 5
