"""Stopping anywhere and going on with any number of workers gives the uninterrupted samples."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cluster.artifact import Artifact
from cluster.errors import BadInput
from tasks.tokens.loader import Arrangement, Loader
from tasks.tokens.mixture.settings import Mixture, MixtureStage
from tasks.tokens.steps import Steps
from tasks.training.prefetch import Prefetcher
from tests.tokens.made import packed, shards_of

CONTEXT, BATCH = 16, 12
MIXTURE = Mixture(
    stages=(
        MixtureStage(until=0.4, weights={"a": 0.7, "b": 0.3}),
        MixtureStage(until=1.0, weights={"a": 0.2, "b": 0.8}),
    ),
    max_epochs={"a": 2.5},
)
Case = tuple[Artifact, Arrangement | None, int]


@pytest.fixture(scope="module", params=["windows", "best_fit", "padded", "mixture"])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Shards, how they are arranged, and the steps of a good two epochs."""
    root = tmp_path_factory.mktemp(request.param)
    lengths = np.random.default_rng(0).integers(2, 40, 45).tolist()
    shards = shards_of(root, lengths, "a" * 15 + "b" * 30, shard_tokens=150)
    if request.param == "windows":
        arrangement = None
    elif request.param == "mixture":
        packing = packed(root, shards, "concatenate", CONTEXT)
        arrangement = Arrangement(packing, MIXTURE, Steps(11, BATCH))
    else:
        arrangement = Arrangement(packed(root, shards, request.param, CONTEXT))
    epoch = len(Loader(shards, "train", CONTEXT, 3, arrangement))
    assert epoch % BATCH, "the border of an epoch should lie inside a step"
    return shards, arrangement, 11 if request.param == "mixture" else 2 * epoch // BATCH + 2


def steps_of(case: Case, first: int, workers: int) -> Iterator[np.ndarray]:
    """Sample ids of every step from `first` on, each worker with a loader of its own."""
    shards, arrangement, steps = case
    loaders = [Loader(shards, "train", CONTEXT, 3, arrangement) for _ in range(workers)]
    share = BATCH // workers
    for step in range(first, steps):
        begins = range(step * BATCH, (step + 1) * BATCH, share)
        yield np.concatenate(
            [loader.order(begin, share) for loader, begin in zip(loaders, begins, strict=True)]
        )


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_every_step_of_two_epochs_can_be_resumed_with_any_workers(case: Case, workers: int) -> None:
    whole = list(steps_of(case, 0, 1))
    assert len(np.unique(np.concatenate(whole))) < len(whole) * BATCH, "nothing was repeated"
    for stop in range(len(whole)):
        resumed = list(steps_of(case, stop, workers))
        assert np.array_equal(whole[:stop] + resumed, whole), f"stopped at step {stop}"


def test_the_batches_are_those_of_the_sample_ids(case: Case) -> None:
    shards, arrangement, steps = case
    loader = Loader(shards, "train", CONTEXT, 3, arrangement)
    by_id: dict[int, list[int]] = {}
    for step in range(steps):
        batch = loader.batch(step * BATCH, BATCH)
        ids = loader.order(step * BATCH, BATCH).tolist()
        for sample, row in zip(ids, batch["targets"].tolist(), strict=True):
            assert by_id.setdefault(sample, row) == row
    assert len({tuple(row) for row in by_id.values()}) > len(by_id) // 2


def test_epochs_of_packed_samples_hold_each_once(case: Case) -> None:
    shards, arrangement, _ = case
    loader = Loader(shards, "train", CONTEXT, 3, arrangement)
    if loader.mixture_index is None:
        for epoch in (0, 1, 5):
            order = loader.order(epoch * len(loader), len(loader))
            assert sorted(order) == list(range(len(loader)))
        return
    order_N, (source_N, _) = loader.order(0, 132), loader.mixture_index.locate(np.arange(132))
    for index, source in enumerate(loader.layout.sources):
        own = order_N[source_N == index]
        for first in range(0, len(own) - source.samples + 1, source.samples):
            assert len(set(own[first : first + source.samples])) == source.samples
    first_b = np.searchsorted(loader._begins, order_N, side="right") - 1
    assert np.array_equal(first_b, source_N)


def test_a_shard_changed_after_a_checkpoint_is_refused_by_name(tmp_path: Path) -> None:
    shards = shards_of(tmp_path, [30] * 20, shard_tokens=200)
    Loader(shards, "train", CONTEXT, 0).batch(0, 8)
    path = shards.file("train-00001.arrow")
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 4
    path.write_bytes(raw)
    loader = Loader(shards, "train", CONTEXT, 0)
    with pytest.raises(BadInput, match=r"train-00001\.arrow: block 0 .* --rebuild shards"):
        for step in range(5):
            loader.batch(8 * step, 8)


def test_an_error_of_the_loader_ends_the_training_that_waits_for_it(tmp_path: Path) -> None:
    shards = shards_of(tmp_path, [30] * 20, shard_tokens=200)
    loader = Loader(shards, "train", CONTEXT, 0)
    shards.file("train-00002.arrow").unlink()

    def fetch(step: int) -> object:
        return loader.batch(8 * step, 8)

    missing = pytest.raises(BadInput, match=r"train-00002\.arrow is missing")
    with missing, Prefetcher(fetch, 0, 4) as batches:
        for step in range(5):
            batches.take(step)


def test_a_killed_loader_leaves_nothing_behind(tmp_path: Path) -> None:
    shards = shards_of(tmp_path, [30] * 20)
    script = f"""
        import os, signal
        from pathlib import Path
        from tasks.tokens.loader import Loader
        loader = Loader(Path({str(shards.path)!r}), "train", {CONTEXT}, 0)
        print(loader.order(0, 8).tolist(), flush=True)
        loader.batch(0, 8)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    shared = Path("/dev/shm")
    before = {p.name for p in shared.glob("*") if p.stat().st_uid == os.getuid()}
    files = sorted(p.name for p in shards.path.iterdir())
    runs = [
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)],
            capture_output=True,
            text=True,
            cwd=Path(__file__).parents[2],
            timeout=300,
        )
        for _ in range(2)
    ]
    assert [run.returncode for run in runs] == [-signal.SIGKILL] * 2, runs[0].stderr
    expected = Loader(shards, "train", CONTEXT, 0).order(0, 8).tolist()
    assert {run.stdout for run in runs} == {f"{expected}\n"}
    assert sorted(p.name for p in shards.path.iterdir()) == files
    after = {p.name for p in shared.glob("*") if p.stat().st_uid == os.getuid()}
    assert not [name for name in after - before if "headrace" in name or "loader" in name]
