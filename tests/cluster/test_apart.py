"""Nodes with homes of their own: blocks and artifacts go through the shared store."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.two_nodes import two_nodes

HEADRACE = ("-c", "import headrace; headrace.main()")
TOY = Path(__file__).with_name("apart_toy.py")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of two nodes, and the folder with their homes."""
    folder = tmp_path_factory.mktemp("nodes")
    with two_nodes(folder) as address:
        yield address, folder
        down = [*HEADRACE, "down", "--home", str(folder / "driver")]
        subprocess.run([sys.executable, *down], check=True, capture_output=True)


def run(
    cluster: tuple[str, Path], *command: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """A command on the cluster, with a home that the nodes are told not to share."""
    address, folder = cluster
    here = {"RAY_ADDRESS": address, "HEADRACE_HOME": str(folder / "driver")}
    paths = {"PYTHONPATH": f"{TOY.parent}{os.pathsep}{TOY.parents[2]}"}
    return subprocess.run(
        [sys.executable, *command],
        env=os.environ | here | paths | {"HEADRACE_OWN_HOMES": "1"} | variables,
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_blocks_and_artifacts_go_through_the_store_and_outlive_their_node(
    cluster: tuple[str, Path],
) -> None:
    folder = cluster[1]
    store, notes = f"file://{folder}/bucket", str(folder / "notes")
    done = run(cluster, str(TOY), HEADRACE_STORE=store, HEADRACE_NOTES=notes)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(json.loads(done.stdout)["rows"]) == 18
    told = Counter(line.rsplit(" ", 1)[0] for line in Path(notes).read_text().splitlines())
    assert all(told[f"make {number}"] == 1 for number in range(6)), "no block is made again"
    assert {line.split()[-1] for line in Path(notes).read_text().splitlines()} == {"one", "two"}
    assert not list((folder / "bucket" / "work").glob("*/*")), "scratch goes when it is done"
    assert not (folder / "driver" / "artifacts").exists()


def test_without_a_store_nodes_with_homes_of_their_own_take_nothing(
    cluster: tuple[str, Path],
) -> None:
    notes = cluster[1] / "refused"
    done = run(cluster, str(TOY), HEADRACE_NOTES=str(notes))
    assert done.returncode == 1 and "HEADRACE_STORE=s3://" in done.stderr, done.stderr[-3000:]
    assert not notes.exists()


@pytest.mark.slow
def test_without_a_store_a_run_is_refused_before_its_first_stage(
    cluster: tuple[str, Path],
) -> None:
    done = run(cluster, *HEADRACE, "data", "smoke", "--json")
    assert done.returncode == 2, done.stderr[-3000:]
    told = {stage["state"] for stage in json.loads(done.stdout)["stages"]}
    assert "built" not in told
    assert done.stderr.count("HEADRACE_STORE=s3://") == 1
