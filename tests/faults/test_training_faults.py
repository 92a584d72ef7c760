"""Training that is killed, stopped, or finds its checkpoints damaged."""

import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from cluster.errors import BadInput
from cluster.placement import Placement
from cluster.world import join
from tasks.training import checkpoint, state
from tasks.training.checkpoint import CheckpointFailed
from tasks.training.job import CHECKPOINTS, Program, TrainJob
from tasks.training.launch import launch
from tasks.training.loop import Trainer
from tasks.training.prefetch import Prefetcher
from tasks.training.settings import OptimizerSettings
from tasks.training.telemetry import TIMING
from tests.faults.train_toy import STEPS
from tests.training import toy

ROOT = Path(__file__).parents[2]
TIMEOUT = 120
ROOM = 20_480  # bytes: the metrics and two checkpoints, in blocks of 4,096


def start(folder: Path, **options: Any) -> subprocess.Popen[str]:
    flags = [f"--{key.replace('_', '-')}={value}" for key, value in options.items()]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.faults.train_toy", str(folder), *flags],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def wait_for_step(folder: Path, step: int) -> None:
    """Until some row of that step has been written."""
    deadline = time.monotonic() + TIMEOUT
    while len(rows(folder)) < step:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def rows(folder: Path) -> list[dict[str, Any]]:
    """The metrics without the figures that time decides."""
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    found = [json.loads(line) for line in lines if line.endswith("\n")]
    return [{key: row[key] for key in row if key not in TIMING} for row in found]


def train_here(folder: Path, dropout: float = 0.1, **placement: int) -> None:
    """Train, or go on, in this process: the same job as the one that was killed."""
    folder.mkdir(exist_ok=True)
    job = toy.job(folder, build=partial(toy.build, dropout), steps=STEPS, checkpoint_seconds=1000)
    launch(job, Placement(**placement))


@pytest.mark.parametrize("zero_stage", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_killed_training_ends_with_the_same_bits(tmp_path: Path, zero_stage: int) -> None:
    killed, undisturbed = tmp_path / "killed", tmp_path / "undisturbed"
    process = start(killed, zero_stage=zero_stage, pause=0.02)
    wait_for_step(killed, random.randint(8, 30))
    process.kill()
    output, _ = process.communicate()
    assert output == "", "stdout is for results"
    assert not (killed / "weights.safetensors").exists()
    assert checkpoint.newest(killed / CHECKPOINTS) is not None
    for folder in (killed, undisturbed):
        train_here(folder, zero_stage=zero_stage)
    assert rows(killed) == rows(undisturbed)
    assert len(rows(killed)) == STEPS
    weights = [(f / "weights.safetensors").read_bytes() for f in (killed, undisturbed)]
    assert weights[0] == weights[1]


def test_sigterm_saves_and_says_so(tmp_path: Path) -> None:
    stopped, undisturbed = tmp_path / "stopped", tmp_path / "undisturbed"
    process = start(stopped, pause=0.02, checkpoint_seconds=1000)
    wait_for_step(stopped, 5)
    for _ in range(3):  # those that come while it saves change nothing
        process.send_signal(signal.SIGTERM)
        time.sleep(0.01)
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 1
    assert f"of {STEPS}; run the same command again to go on" in errors
    done = checkpoint.newest(stopped / CHECKPOINTS)
    assert done is not None
    assert done.step == len(rows(stopped)) < STEPS
    for folder in (stopped, undisturbed):
        train_here(folder)
    assert rows(stopped) == rows(undisturbed)


@pytest.mark.parametrize(
    ("zero_stage", "then", "harm"),
    [(1, 1, signal.SIGKILL), pytest.param(3, 0, signal.SIGSTOP, marks=pytest.mark.slow)],
)
def test_two_workers_are_continued_by_one(
    tmp_path: Path, zero_stage: int, then: int, harm: signal.Signals
) -> None:
    """When one of two ranks is killed or stops, the other ends by itself. Their state is put
    together for one, in another ZeRO stage if wished.
    """
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    options = {"store": tmp_path / "store", "zero_stage": zero_stage, "dropout": 0, "pause": 0.02}
    ranks = [start(shared, rank=r, size=2, hang_seconds=4, **options) for r in (0, 1)]
    wait_for_step(shared, 15)
    ranks[1].send_signal(harm)
    _, errors = ranks[0].communicate(timeout=TIMEOUT)
    assert ranks[0].returncode == 1
    assert re.search(r"Timeout \(0:00:04\)|Connection (closed|reset) by peer", errors), errors
    ranks[1].kill()
    ranks[1].communicate()
    done = checkpoint.newest(shared / CHECKPOINTS)
    assert done is not None
    assert len(done.files) == 2
    for folder in (alone, shared):
        train_here(folder, dropout=0.0, zero_stage=then)
    losses = [[row["loss"] for row in rows(folder)] for folder in (alone, shared)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


@pytest.mark.slow
def test_twenty_kills_on_changing_numbers_of_workers() -> None:
    """All rows of the benchmark's table are as they must be."""
    command = [sys.executable, "benchmarks/training_kills.py", "--stages", "1"]
    subprocess.run(command, cwd=ROOT, check=True)


def test_a_checkpoint_holds_what_was_when_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked = checkpoint._write, threading.Event()

    def slow(path: Path, tensors: Any) -> Any:
        assert asked.wait(TIMEOUT)
        time.sleep(0.2)  # the next step is ready to change them
        return real(path, tensors)

    monkeypatch.setattr(checkpoint, "_write", slow)
    trainer = Trainer(toy.job(tmp_path), Placement(), join(gpu=False), None)
    with Prefetcher(trainer.feed.fetch, 1, 2) as batches:
        trainer.step(1, batches)
        trainer.done = 1
        expected = {
            key: t.clone() for key, t in state.share(trainer.engine, trainer.layout).items()
        }
        trainer.save()
        asked.set()
        trainer.step(2, batches)
    trainer.commit()
    trainer.close()
    found = checkpoint.newest(tmp_path / CHECKPOINTS)
    assert found is not None
    read = checkpoint.reader(found)
    for key, tensor in expected.items():
        assert torch.equal(read(key.removesuffix("@0")), tensor), key
    assert not torch.equal(trainer.program.module.scale, expected["model.scale@0"])


def test_a_clock_that_jumps_by_days_disturbs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, days = time.time, itertools.cycle([0, 1, -1])
    monkeypatch.setattr(time, "time", lambda: real() + 86_400 * next(days))
    train_here(tmp_path / "jumping")
    monkeypatch.undo()
    train_here(tmp_path / "steady")
    assert rows(tmp_path / "jumping") == rows(tmp_path / "steady")
    lines = (tmp_path / "jumping" / "metrics.jsonl").read_text().splitlines()
    assert all(0 < json.loads(line)["seconds"] < 60 for line in lines)


def stopped(folder: Path, at: int, **changes: Any) -> TrainJob:
    """A job whose training ended at a step, with checkpoints of the two steps before it."""
    broken = partial(toy.build, poison=at)
    job = toy.job(folder, build=broken, checkpoint_seconds=1e-6, **changes)
    with pytest.raises(RuntimeError):
        launch(job, Placement())
    return toy.job(folder, checkpoint_seconds=1e-6, **changes)


def test_a_crash_while_saving_leaves_the_checkpoints_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = checkpoint._write, []

    def full_disk(path: Path, tensors: Any) -> Any:
        calls.append(path)
        if len(calls) == 6:
            path.write_bytes(b"half")
            path = path / "no folder"
        return real(path, tensors)

    monkeypatch.setattr(checkpoint, "_write", full_disk)
    job = toy.job(tmp_path, checkpoint_seconds=1e-6)
    with pytest.raises(CheckpointFailed, match=r"not written: .*step-00000006.*Not a directory"):
        launch(job, Placement())
    found = checkpoint.newest(tmp_path / CHECKPOINTS)
    assert found is not None
    assert found.step == 5
    expected = toy.job(tmp_path / "expected")
    launch(expected, Placement())
    launch(job, Placement())
    assert rows(tmp_path) == rows(expected.scratch)


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of so many bytes, in a mount namespace of its own, seen from this process."""
    command = f"mount -t tmpfs -o size={size} none {folder} && echo ready && read end"
    holder = subprocess.Popen(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None and holder.stdin is not None
        if holder.stdout.readline() != "ready\n":
            pytest.skip("this machine lets no user mount a small disk")
        yield Path(f"/proc/{holder.pid}/root{folder}")
        holder.stdin.close()


def test_a_disk_that_fills_stops_training_and_leaves_the_checkpoints_before(tmp_path: Path) -> None:
    expected = toy.job(tmp_path / "expected")
    launch(expected, Placement())
    with small_disk(tmp_path, "64k") as folder:
        job, other = toy.job(folder / "job", checkpoint_seconds=1e-6), folder / "other"
        other.write_bytes(bytes(shutil.disk_usage(folder).free - ROOM))
        with pytest.raises(CheckpointFailed, match=r"rank-00000.*No space left.*are untouched"):
            launch(job, Placement())
        found = checkpoint.newest(job.scratch / CHECKPOINTS)
        assert found is not None and 1 <= found.step < 12
        other.unlink()
        launch(job, Placement())
        assert rows(job.scratch) == rows(expected.scratch)


def test_a_batch_that_cannot_be_fetched_stops_training_with_the_reason(tmp_path: Path) -> None:
    failing, expected = toy.job(tmp_path / "failing"), toy.job(tmp_path / "expected")
    launch(expected, Placement())
    with pytest.raises(OSError, match="disk is gone"):
        launch(replace(failing, build=lose_disk, checkpoint_seconds=1e-6), Placement())
    assert 0 < len(rows(failing.scratch)) < 7
    launch(failing, Placement())
    assert rows(failing.scratch) == rows(expected.scratch)


def lose_disk() -> Program:
    """A toy whose seventh batch cannot be read."""
    program = toy.build()

    def batch(first: int, count: int) -> Any:
        if first == 48:
            raise OSError("disk is gone")
        return toy.batch(first, count)

    return Program(program.module, batch)


class Killed(BaseException):
    """Stands for a kill: nothing that comes after it runs."""


@pytest.mark.parametrize(
    ("place", "survivor"),
    [
        ("share", 5),
        ("_write", 5),
        ("fingerprint", 5),
        ("_write_record", 5),
        ("rename", 5),
        ("complete", 6),
    ],
)
def test_a_kill_at_any_point_of_saving_leaves_a_complete_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, survivor: int
) -> None:
    target: Any = {"share": state, "rename": Path}.get(place, checkpoint)
    real_save, real, saving = Trainer.save, getattr(target, place), []

    def save(trainer: Trainer) -> None:
        trainer.commit()
        saving.append(trainer.done)
        real_save(trainer)

    def killed(*arguments: Any) -> Any:
        if saving and saving[-1] == 6:
            raise Killed
        return real(*arguments)

    monkeypatch.setattr(Trainer, "save", save)
    monkeypatch.setattr(target, place, killed)
    with pytest.raises(Killed):
        launch(toy.job(tmp_path, checkpoint_seconds=1e-6), Placement())
    monkeypatch.undo()
    found = checkpoint.newest(tmp_path / CHECKPOINTS)
    assert found is not None
    assert found.step == survivor


@pytest.mark.parametrize("victim", ["rank-00000.safetensors", "checkpoint.json"])
@pytest.mark.parametrize("harm", ["flip", "truncate", "empty", "delete"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, victim: str, harm: str
) -> None:
    job = stopped(tmp_path, at=9)
    path = tmp_path / CHECKPOINTS / "step-00000008" / victim
    damage(path, harm)
    found = checkpoint.newest(tmp_path / CHECKPOINTS)
    assert found is not None
    assert found.step == 7
    assert str(path) in caplog.text
    launch(job, Placement())
    assert [row["step"] for row in rows(tmp_path)] == list(range(1, 13))


def damage(path: Path, harm: str) -> None:
    data = bytearray(path.read_bytes())
    if harm == "delete":
        path.unlink()
        return
    if harm == "flip":
        digit = next(i for i in range(len(data) // 2, len(data)) if chr(data[i]).isalnum())
        data[digit] ^= 1
    path.write_bytes({"flip": data, "truncate": data[: len(data) // 2], "empty": b""}[harm])


def test_checkpoints_that_are_all_damaged_are_an_error_not_a_fresh_start(tmp_path: Path) -> None:
    job = stopped(tmp_path, at=9)
    for path in (tmp_path / CHECKPOINTS).glob("step-*/rank-00000.safetensors"):
        damage(path, "truncate")
    with pytest.raises(BadInput, match=r"no usable checkpoint in .*step-00000008.*to start from"):
        launch(job, Placement())
    shutil.rmtree(tmp_path / CHECKPOINTS)
    launch(job, Placement())


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"optimizer": OptimizerSettings(learning_rate=0.5), "seed": 3},
            r"learning_rate 0\.02 -> 0\.5; .*seed 0 -> 3",
        ),
        ({"optimizer": OptimizerSettings(name="sgd", learning_rate=0.02)}, "name adamw -> sgd"),
        ({"build": toy.network}, r"shape of hidden\.weight \[7, 7\] -> None"),
        ({"precision": "bf16"}, "precision fp32 -> bf16"),
        ({"data": "other shards"}, "data  -> other shards"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused_with_what_differs(
    tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    stopped(tmp_path, at=9)
    with pytest.raises(BadInput, match=told):
        launch(toy.job(tmp_path, **changes), Placement())


class Malicious:
    """Creates a file when it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> Any:
        return Path.touch, (self.canary,)


def test_d12_a_pickle_in_the_place_of_tensors_is_refused_unread(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Even with a record that names its hash."""
    job = stopped(tmp_path, at=9)
    canary = tmp_path / "canary"
    found = checkpoint.newest(tmp_path / CHECKPOINTS)
    assert found is not None
    victim = found.path / "rank-00000.safetensors"
    torch.save(Malicious(canary), victim)
    shutil.copyfile(victim, found.path / "more.pt")
    forged = replace(found, files={victim.name: checkpoint.fingerprint(victim)})
    checkpoint._write_record(found.path / checkpoint.RECORD, forged)
    launch(job, Placement())
    assert f"{victim} holds no tensors" in caplog.text
    assert len(rows(tmp_path)) == 12
    assert not canary.exists()


def test_a_disk_too_small_for_the_checkpoints_is_said_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=5_000))
    with pytest.raises(BadInput, match=r"checkpoints need 5,544 bytes, .* has 5,000 free"):
        launch(toy.job(tmp_path), Placement())
    assert rows(tmp_path) == []


def test_a_folder_left_by_a_killed_writer_is_not_a_checkpoint(tmp_path: Path) -> None:
    leftover = tmp_path / CHECKPOINTS / ".step-00000003"
    leftover.mkdir(parents=True)
    (leftover / "rank-00000.safetensors").write_bytes(b"half")
    assert checkpoint.newest(tmp_path / CHECKPOINTS) is None
    assert not leftover.exists()
