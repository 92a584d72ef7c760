"""Training by two Ray Train workers: the same losses as one, through a worker's death too."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import ray

from cluster.errors import BadInput
from cluster.machine import interface_of
from cluster.placement import Placement
from cluster.tracking import NullTracker
from tasks.training.job import Diverged, Program
from tasks.training.launch import launch
from tasks.training.telemetry import Follower, Reporter
from tests.training import toy
from tests.training.two_ranks import divided_job


def losses(folder: Path) -> list[float]:
    return [
        json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().split("\n")[:-1]
    ]


class Recorder(NullTracker):
    def __init__(self) -> None:
        self.steps: list[int] = []

    def metrics(self, rows: Any) -> None:
        self.steps += [row["step"] for row in rows]


def test_two_workers_with_zero_1_train_as_one_process_does(
    ray_session: None, tmp_path: Path
) -> None:
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    launch(toy.job(alone), Placement())
    tracker, seen = Recorder(), []
    job = toy.job(
        shared,
        build=partial(build_told, tmp_path),
        checkpoint_seconds=1e-6,
        tracker=tracker,
        on_progress=lambda *figures, **more: seen.append(figures),
    )
    weights = launch(job, Placement(workers=2, zero_stage=1))
    assert weights == shared / "weights.safetensors"
    assert losses(shared) == pytest.approx(losses(alone), rel=1e-5)
    assert tracker.steps == list(range(1, 13))
    assert seen[-1] == (12, 12, "steps")
    own = interface_of(ray.util.get_node_ip_address())
    told = [path.read_text() for path in tmp_path.glob("*.interfaces")]
    assert own and told == [f"{own} ={own}"] * 2, "not what the host's name stands for"


def build_told(folder: Path) -> Program:
    names = f"{os.environ['GLOO_SOCKET_IFNAME']} {os.environ['NCCL_SOCKET_IFNAME']}"
    (folder / f"{os.getpid()}.interfaces").write_text(names)
    return toy.build()


def test_the_last_step_is_told_however_soon_the_training_ends(tmp_path: Path) -> None:
    seen: list[Any] = []
    reporter = Reporter(tmp_path, 12, None, lambda *figures, **more: seen.append(figures))
    with Follower(tmp_path, reporter, lambda: 0):
        row = {"step": 12, "loss": 1.0, "tokens_per_second": 1.0}
        (tmp_path / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    assert seen == [(12, 12, "steps")]


@pytest.mark.slow
def test_two_workers_that_have_a_network_together_train_it_as_one(
    ray_session: None, tmp_path: Path
) -> None:
    alone, together = tmp_path / "alone", tmp_path / "together"
    launch(divided_job(alone), Placement())
    launch(divided_job(together), Placement(workers=2, tensor_parallel=2, zero_stage=1))
    assert losses(together) == pytest.approx(losses(alone), rel=1e-5)


def note_process(folder: Path, first: int, count: int) -> dict[str, Any]:
    (folder / f"{os.getpid()}.pid").touch()
    time.sleep(0.05)
    return toy.batch(first, count)


def build_noted(folder: Path) -> Program:
    program = toy.build()
    return Program(program.module, partial(note_process, folder))


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_the_training_goes_on(
    ray_session: None, tmp_path: Path
) -> None:
    alone, shared, pids = tmp_path / "alone", tmp_path / "shared", tmp_path / "pids"
    pids.mkdir()
    launch(toy.job(alone, steps=60), Placement(workers=1))
    job = toy.job(shared, steps=60, build=partial(build_noted, pids), checkpoint_seconds=0.2)
    killer = threading.Thread(target=kill_one, args=(shared, pids))
    killer.start()
    launch(job, Placement(workers=2, zero_stage=1))
    killer.join()
    assert len(list(pids.iterdir())) == 4
    assert losses(shared) == pytest.approx(losses(alone), rel=1e-4)


def kill_one(folder: Path, pids: Path) -> None:
    while not list(folder.glob("checkpoints/step-*")):
        time.sleep(0.05)
    os.kill(int(next(pids.iterdir()).stem), signal.SIGKILL)


@pytest.mark.slow
def test_divergence_is_not_tried_again(ray_session: None, tmp_path: Path) -> None:
    job = toy.job(tmp_path, build=partial(toy.build, poison=4))
    with pytest.raises(Diverged, match=r"step 4 of 12: loss nan"):
        launch(job, Placement(workers=2))


@pytest.mark.slow
def test_after_a_node_has_left_fewer_workers_go_on(tmp_path: Path) -> None:
    """Of two workers with 4 samples each, one is left with 8. Ray tries two for a minute first."""
    launch(toy.job(tmp_path / "alone", steps=60), Placement())
    shared = tmp_path / "shared"
    command = [sys.executable, "-m", "tests.training.elastic", str(shared)]
    subprocess.run(command, cwd=Path(__file__).parents[2], timeout=400, check=True)
    assert {path.name for path in shared.glob("share-*")} == {"share-4", "share-8"}
    assert losses(shared) == pytest.approx(losses(tmp_path / "alone"), rel=1e-4)


def test_every_number_of_workers_must_be_able_to_share_a_batch(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="8 samples cannot be shared by 3 workers"):
        launch(toy.job(tmp_path), Placement(workers=4, least_workers=2))
