"""Machines that lack something: a run works there, or says in a sentence what it needs."""

import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest

HEADRACE = str(Path(sys.executable).with_name("headrace"))
TEXT = "Of the mills on this river the one numbered {} has the {} oldest wheel of them all. "
ROWS = "".join(json.dumps({"text": TEXT.format(i, 3 * i) * 5}) + "\n" for i in range(50))
MOUNT = "mount -t tmpfs -o {options} none {folder} && exec {command}"


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    (tmp_path / "rows.jsonl").write_text(ROWS)
    made = tmp_path / "recipe.yaml"
    made.write_text(f"name: odd\nsources: [{{path: '{tmp_path}/rows.jsonl'}}]\n")
    return made


def data(
    recipe: Path, home: Path, narrow: Callable[[], object] | None = None
) -> subprocess.CompletedProcess[str]:
    """Text to shards in a process with limits of its own; its services are ended."""
    variables = os.environ | {"HEADRACE_HOME": str(home)}
    command = [HEADRACE, "data", str(recipe), "--json"]
    for name in ("PREFECT_API_URL", "PREFECT_HOME", "MLFLOW_TRACKING_URI"):
        variables.pop(name, None)
    try:
        return subprocess.run(
            command, env=variables, preexec_fn=narrow, capture_output=True, text=True
        )
    finally:
        subprocess.run([HEADRACE, "down"], env=variables, capture_output=True)


def completed(done: subprocess.CompletedProcess[str]) -> bool:
    return done.returncode == 0 and json.loads(done.stdout)["status"] == "completed"


@pytest.mark.slow
def test_a_home_with_spaces_and_umlauts(recipe: Path, tmp_path: Path) -> None:
    done = data(recipe, tmp_path / "M\u00fcllers Heim (neu) 'x'")
    assert completed(done), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("what", ["256 open files", "one CPU", "4 GB of memory"])
def test_a_small_machine(what: str, recipe: Path, tmp_path: Path) -> None:
    narrow = {
        "256 open files": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)),
        "one CPU": lambda: psutil.Process().cpu_affinity([min(os.sched_getaffinity(0))]),
        "4 GB of memory": lambda: resource.setrlimit(resource.RLIMIT_DATA, (4 << 30, 4 << 30)),
    }
    done = data(recipe, tmp_path / "home", narrow[what])
    assert completed(done), done.stderr


@pytest.mark.slow
def test_ports_that_others_have(recipe: Path, tmp_path: Path) -> None:
    with ExitStack() as stack:
        for port in (4200, 5000):
            with suppress(OSError):  # somebody has it already
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
        done = data(recipe, tmp_path / "home")
    assert completed(done), done.stderr
    assert ":4200/" not in json.loads(done.stdout)["urls"]["prefect"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("ro", "it lies on a file system that is read-only; name another with --home"),
        ("size=100m,nr_inodes=12", "the disk is full; `headrace gc` frees"),
        ("size=64k", "the disk is full; `headrace gc` frees"),
    ],
)
def test_a_disk_that_takes_nothing(
    options: str, words: str, recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PREFECT_API_URL", "PREFECT_HOME", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "disk"
    folder.mkdir()
    command = f"{HEADRACE} data {recipe} --home {folder}/home"
    script = MOUNT.format(options=options, folder=folder, command=command)
    # The services that it starts end with the first process of these namespaces.
    apart = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc"]
    done = subprocess.run([*apart, "sh", "-c", script], capture_output=True, text=True)
    if "headrace" not in done.stderr and done.returncode in (1, 32):
        pytest.skip("this machine lets no user mount a disk")
    assert done.returncode in (1, 2) and words in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
