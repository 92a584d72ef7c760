"""The sbatch script, with stand-ins for Slurm: Ray on all nodes, a checkpoint, then the queue."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.pages import ROOT

SCRIPT = ROOT / "cluster" / "slurm" / "headrace.sbatch"
# `srun` runs what comes after its own options, once for each task.
SRUN = """#!/bin/bash
echo "srun $*" >> "$LOG"
tasks=1
while [[ $1 == --* ]]; do
    [[ $1 == --ntasks=* ]] && tasks=${1#*=}
    shift
done
for _ in $(seq "$tasks"); do "$@" & done
trap 'kill $(jobs -p)' TERM
wait
"""
SCONTROL = """#!/bin/bash
echo "scontrol $*" >> "$LOG"
[[ $1 == show ]] && printf '%s\\nn2\\nn3\\n' "$(hostname)"
exit 0
"""
RAY = """#!/bin/bash
echo "ray $* token ${#RAY_AUTH_TOKEN}" >> "$LOG"
[[ $1 == health-check ]] || exec sleep 60
"""
RUN = """#!/bin/bash
trap 'echo checkpoint >> "$LOG"; exit 143' TERM
echo "headrace $* at $RAY_ADDRESS" >> "$LOG"
until (($(grep -c "^ray start" "$LOG") == 3)); do sleep 0.1; done
for _ in $(seq "$STEPS"); do sleep 0.1; done
exit "$ENDS"
"""


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., "subprocess.Popen[bytes]"]:
    """Starts the script as Slurm would on three nodes, this machine the first."""
    stand_ins = {"srun": SRUN, "scontrol": SCONTROL, "ray": RAY, "headrace": RUN}
    for name, text in stand_ins.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)

    def start(*arguments: str, **changes: str) -> "subprocess.Popen[bytes]":
        given = {
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "LOG": str(tmp_path / "log"),
            "HEADRACE_PYTHON": str(tmp_path / "python"),
            "SLURM_JOB_ID": "4711",
            "SLURM_JOB_NODELIST": "n[1-3]",
            "SLURM_JOB_NUM_NODES": "3",
            "SLURM_CPUS_PER_TASK": "1",
            "STEPS": "1",
            "ENDS": "0",
        }
        variables = os.environ | given | changes
        return subprocess.Popen([SCRIPT, *arguments], env=variables, start_new_session=True)

    return start


def told(folder: Path, word: str, seconds: float = 60.0) -> list[str]:
    """The lines of the log that begin so, as soon as there are any."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        lines = (folder / "log").read_text().splitlines() if (folder / "log").exists() else []
        if found := [line for line in lines if line.startswith(word)]:
            return found
        time.sleep(0.05)
    raise AssertionError(f"the log has no line of {word}")


@pytest.mark.parametrize("status", ["0", "2"])
def test_ray_starts_on_all_nodes_and_the_run_decides_how_the_job_ends(
    job: Any, tmp_path: Path, status: str
) -> None:
    assert job("run", "mine.yaml", ENDS=status, SLURM_GPUS_ON_NODE="4").wait(60) == int(status)
    first, others = sorted(told(tmp_path, "srun"), key=lambda line: "--exclude" in line)
    port = 20000 + 4711
    assert "--nodes=1 --ntasks=1" in first and "start --head" in first
    assert "--nodes=2 --ntasks=2" in others and f"--exclude={socket.gethostname()}" in others
    assert f":{port} --num-cpus=1 --block --num-gpus=4" in others
    started = [line for line in told(tmp_path, "ray") if " start " in line]
    assert len(started) == 3 and all(line.endswith("token 48") for line in started)
    (run,) = told(tmp_path, "headrace")
    assert run.startswith("headrace run mine.yaml at ") and run.endswith(f":{port}")
    assert "127." not in run.split(" at ")[1]
    assert "requeue" not in (tmp_path / "log").read_text()


@pytest.mark.parametrize("notice", [signal.SIGUSR1, signal.SIGTERM])
def test_a_notice_is_followed_by_a_checkpoint_and_then_by_the_queue(
    job: Any, tmp_path: Path, notice: signal.Signals
) -> None:
    script = job(STEPS="600")
    told(tmp_path, "headrace")
    os.kill(script.pid, notice)
    assert script.wait(60) == 0
    os.killpg(script.pid, signal.SIGKILL)  # what Slurm does of a job's steps
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines.index("checkpoint") < lines.index("scontrol requeue 4711")


def test_without_ray_nothing_is_run(job: Any, tmp_path: Path) -> None:
    (tmp_path / "ray").write_text("#!/bin/bash\nexit 1\n")
    assert job().wait(60) == 1
    assert "headrace" not in (tmp_path / "log").read_text()


@pytest.mark.slow
def test_a_run_on_real_nodes_of_ray(job: Any, tmp_path: Path) -> None:
    """Of three nodes on this machine, each with one CPU."""
    (tmp_path / "ray").unlink()
    (tmp_path / "ray").symlink_to(Path(sys.executable).with_name("ray"))
    count = "import ray; ray.init(); print(int(ray.cluster_resources()['CPU']))"
    (tmp_path / "headrace").write_text(
        f'#!/bin/bash\nsleep 20\necho "CPUs $({sys.executable} -c "{count}")" >> "$LOG"\n'
    )
    script = job()
    assert script.wait(400) == 0
    assert told(tmp_path, "CPUs") == ["CPUs 3"]
