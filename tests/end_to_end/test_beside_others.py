"""Headrace beside other code of the same names: `tasks/`, `model.py` and others of a user's own."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.spoilt import spoil

ROOT = Path(__file__).parents[2]
RECIPE = """
name: beside
sources: [{path: rows.jsonl}]
filters: {preset: basic, custom: ["mine.py:keep"]}
tokenizer: {vocab_size: 300}
shards: {heldout_share: 0.5}
"""


def from_wheel(folder: Path) -> Path:
    """Installed into an environment that sees the libraries of this one, and others' packages."""
    uv = shutil.which("uv")
    if uv is None:
        pytest.skip("uv builds the wheel")
    quiet = [uv, "-q", "--offline"]
    environment = folder / "environment"
    subprocess.run([*quiet, "build", "--wheel", "-o", folder, ROOT], check=True)
    subprocess.run([*quiet, "venv", "-p", sys.executable, environment], check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    spoil(packages)
    python = environment / "bin" / "python"
    wheel = next(folder.glob("*.whl"))
    subprocess.run([*quiet, "pip", "install", "--no-deps", "-p", python, wheel], check=True)
    assert "the user's own" in (packages / "model.py").read_text(), "each keeps its files"
    return environment / "bin" / "headrace"


def from_clone(_: Path) -> Path:
    return Path(sys.executable).with_name("headrace")


@pytest.mark.slow
@pytest.mark.parametrize("install", [from_wheel, from_clone])
def test_others_of_these_names_break_nothing(
    shared_home: Path, tmp_path: Path, install: Callable[[Path], Path]
) -> None:
    """`headrace data` in a spoilt folder, with a filter of the user's that imports from Headrace.
    (By default: the smoke run; and, of a file that means its own package,
    `tests/data/filtering/test_custom.py`.)
    """
    command, folder = install(tmp_path / "install"), spoil(tmp_path / "project")
    rows = [json.dumps({"text": f"{command} says that {i} is a number. " * 9}) for i in range(9)]
    (folder / "rows.jsonl").write_text("\n".join(rows))
    (folder / "mine.py").write_text("import tasks.data\ndef keep(text): return True\n")
    (folder / "mine.yaml").write_text(RECIPE)
    done = subprocess.run(
        [command, "data", "mine.yaml", "--json"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(spoil(folder / "other"))},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert {stage["state"] for stage in json.loads(done.stdout)["stages"]} == {"built"}


def test_a_deployment_finds_our_flow(tmp_path: Path) -> None:
    """Prefect puts the folder of a run before all else; a schedule's test has its whole way."""
    deployed = (ROOT / "flows" / "deployment.py").read_text()
    assert 'entrypoint="headrace.pipeline"' in deployed
    code = (
        "from prefect.flows import load_flow_from_entrypoint\n"
        "print(load_flow_from_entrypoint('headrace.pipeline').fn.__module__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=spoil(tmp_path),
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "flows.pipeline\n", done.stderr[-2000:]
