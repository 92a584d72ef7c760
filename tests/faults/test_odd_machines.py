"""Machines that lack something: a run works there, or says in a sentence what it needs."""

import json
import os
import random
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from tests.chaos.nemesis import processes
from tests.chaos.witness import left_running

HEADRACE = str(Path(sys.executable).with_name("headrace"))
TEXT = "Of the mills on this river the one numbered {} has the {} oldest wheel of them all. "
ROWS = "".join(json.dumps({"text": TEXT.format(i, 3 * i) * 5}) + "\n" for i in range(50))
MOUNT = "mount -t tmpfs -o {options} none {folder} && exec {command}"
SERVERS = ("PREFECT_API_URL", "PREFECT_HOME", "MLFLOW_TRACKING_URI")
FILLING = """\
mount -t tmpfs -o size=12m none {folder}
{command} && exit 3
mount -o remount,size=400m {folder}
{command}
ended=$?
cp -r {folder}/home/mlflow {folder}/home/prefect {folder}/home/runs {kept}
exit $ended"""
# The services that are started end with the first process of these namespaces.
APART = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc"]


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    (tmp_path / "rows.jsonl").write_text(ROWS)
    made = tmp_path / "recipe.yaml"
    made.write_text(f"name: odd\nsources: [{{path: '{tmp_path}/rows.jsonl'}}]\n")
    return made


def alone(home: Path) -> dict[str, str]:
    """The variables of a process with a home of its own, and no servers of ours."""
    return {k: v for k, v in os.environ.items() if k not in SERVERS} | {"HEADRACE_HOME": str(home)}


def data(
    recipe: Path, home: Path, narrow: Callable[[], object] | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    """Text to shards in a process with limits and variables of its own; its services are ended."""
    variables, command = alone(home) | more, [HEADRACE, "data", str(recipe), "--json"]
    try:
        return subprocess.run(
            command, env=variables, preexec_fn=narrow, capture_output=True, text=True
        )
    finally:
        subprocess.run([HEADRACE, "down"], env=variables, capture_output=True)


def completed(done: subprocess.CompletedProcess[str]) -> bool:
    return done.returncode == 0 and json.loads(done.stdout)["status"] == "completed"


def apart(script: str) -> subprocess.CompletedProcess[str]:
    """A shell's script where it may mount a disk of its own."""
    done = subprocess.run([*APART, "sh", "-c", script], capture_output=True, text=True)
    if "headrace" not in done.stderr and done.returncode in (1, 32):
        pytest.skip("this machine lets no user mount a disk")
    return done


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


@pytest.mark.slow
def test_five_recipes_at_once_in_one_home(tmp_path: Path) -> None:
    """None waits for another's work, and all of them share one server of each kind."""
    home, runs = tmp_path / "home", list[subprocess.Popen[str]]()
    variables = alone(home)
    for number in range(5):
        rows = tmp_path / f"rows{number}.jsonl"
        rows.write_text(ROWS.replace("river", f"river {number}"))
        made = tmp_path / f"recipe{number}.yaml"
        made.write_text(f"name: odd{number}\nsources: [{{path: '{rows}'}}]\n")
        command = [HEADRACE, "data", str(made), "--json"]
        runs.append(subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True))
    try:
        said = [json.loads(run.communicate()[0]) for run in runs]
        servers = [p for p in processes(home) if "cluster.prefect_process" in p.cmdline()]
    finally:
        subprocess.run([HEADRACE, "down"], env=variables, capture_output=True)
    assert [one["status"] for one in said] == ["completed"] * 5 and len(servers) == 1
    assert len(list(home.glob("artifacts/shards/*"))) == 5 and left_running(home) == 0


@pytest.mark.slow
def test_a_clock_that_is_set_back_during_a_run(recipe: Path, tmp_path: Path) -> None:
    """By two days, for all processes of the run and its services, as soon as there is a result."""
    import libfaketime

    _, faked = libfaketime.get_reload_information()
    library = Path(faked["LD_LIBRARY_PATH"]) / "libfaketime.so.1"
    clock, home = tmp_path / "clock", tmp_path / "home"
    clock.write_text("+0")

    def set_back() -> None:
        while not list(home.glob("artifacts/read/*/artifact.json")):
            time.sleep(0.1)
        clock.write_text("-2d")

    threading.Thread(target=set_back, daemon=True).start()
    began = time.monotonic()
    done = data(
        recipe,
        home,
        LD_PRELOAD=str(library),
        FAKETIME_TIMESTAMP_FILE=str(clock),
        FAKETIME_CACHE_DURATION="1",
        DONT_FAKE_MONOTONIC="1",
    )
    assert completed(done), done.stderr
    said = json.loads(done.stdout)
    assert 0 < said["seconds"] < time.monotonic() - began and clock.read_text() == "-2d"
    assert all(0 <= stage["seconds"] <= said["seconds"] for stage in said["stages"])
    made = [next(home.glob(f"artifacts/{name}/*/artifact.json")) for name in ("read", "report")]
    read, report = (json.loads(path.read_text())["created"] for path in made)
    assert report < read and left_running(home) == 0


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
    for name in SERVERS:
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "disk"
    folder.mkdir()
    command = f"{HEADRACE} data {recipe} --home {folder}/home"
    script = MOUNT.format(options=options, folder=folder, command=command)
    done = apart(script)
    assert done.returncode in (1, 2) and words in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_disk_that_fills_during_a_run_and_is_made_larger(
    tmp_path: Path, recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at a quota's end: a sentence with the remedy, after which the same command completes."""
    for name in SERVERS:
        monkeypatch.delenv(name, raising=False)
    drawn = random.Random(0)
    numbers = [[drawn.randrange(10**12) for _ in range(60)] for _ in range(1500)]
    texts = ("".join(TEXT.format(a, b) for a, b in pairwise(n)) for n in numbers)
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    folder = tmp_path / "disk"
    folder.mkdir()
    command = f"{HEADRACE} data {recipe} --home {folder}/home"
    done = apart(FILLING.format(folder=folder, command=command, kept=tmp_path))
    assert "no space left in" in done.stderr or "the disk is full" in done.stderr, done.stderr
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert left_running(tmp_path) == 0
