"""The loop: equal to a bare PyTorch loop, in every ZeRO stage, and the same each time."""

import gzip
import json
import math
import shutil
import subprocess
import sys
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from cluster.errors import BadInput, StageFailed
from cluster.home import home
from cluster.placement import Placement
from cluster.tracking import NullTracker
from tasks.training import loop, loss_scale
from tasks.training.checkpoint import complete
from tasks.training.job import CHECKPOINTS, WEIGHTS, Diverged, Program, TrainJob
from tasks.training.launch import launch, load_trained
from tasks.training.optimizers import groups_of
from tasks.training.schedule import factor
from tasks.training.settings import OptimizerSettings, RateScales
from tasks.training.spikes import batch_of, read_skipped
from tests.training import toy


def rows(job: TrainJob) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (job.scratch / "metrics.jsonl").read_text().splitlines()]


def cut_short(job: TrainJob, at: int, **placement: Any) -> None:
    """Train until the network's forward pass number `at`, which fails."""
    with pytest.raises(RuntimeError, match="broken"):
        launch(replace(job, build=partial(job.build, break_at=at)), Placement(**placement))


def losses(job: TrainJob, **placement: Any) -> list[float]:
    launch(job, Placement(**placement))
    return [row["loss"] for row in rows(job)]


def bare_loop(job: TrainJob) -> tuple[list[float], nn.Module]:
    """The same training as plainly as PyTorch allows."""
    torch.manual_seed(job.seed)
    program = job.build()
    settings = job.optimizer
    how: Any = {"betas": settings.betas, "eps": settings.epsilon, "fused": True}
    optimizer = torch.optim.AdamW(groups_of(program.module, settings), **how)
    peaks = [group["lr"] for group in optimizer.param_groups]
    batches, found = job.batches, []
    for step in range(1, job.steps + 1):
        batch = program.batch(batches.before(step), batches.size(step))
        optimizer.zero_grad()
        loss = program.module(**{k: torch.from_numpy(v) for k, v in batch.items()})
        loss.backward()
        nn.utils.clip_grad_norm_(program.module.parameters(), settings.clip)
        for group, peak in zip(optimizer.param_groups, peaks, strict=True):
            group["lr"] = peak * factor(batches.clock(step), batches.clock(job.steps), settings)
        optimizer.step()
        found.append(loss.item())
    return found, program.module


def test_losses_and_weights_are_those_of_a_bare_loop(tmp_path: Path) -> None:
    job = toy.job(tmp_path)
    expected, module = bare_loop(job)
    assert losses(job) == expected
    trained = toy.Toy()
    load_trained(trained, job.scratch / "weights.safetensors")
    for name, tensor in module.state_dict().items():
        assert torch.equal(trained.state_dict()[name], tensor), name


@pytest.mark.parametrize("zero_stage", [1, 2, 3])
def test_zero_stages_train_alike(tmp_path: Path, zero_stage: int) -> None:
    plain, sharded = toy.job(tmp_path / "plain"), toy.job(tmp_path / "sharded")
    expected = losses(plain)
    assert losses(sharded, zero_stage=zero_stage) == pytest.approx(expected, rel=1e-5)
    norms = [[row["grad_norm"] for row in rows(job)] for job in (plain, sharded)]
    assert norms[1] == pytest.approx(norms[0], rel=1e-4)
    weights = [load_file(job.scratch / "weights.safetensors") for job in (plain, sharded)]
    assert weights[0].keys() == weights[1].keys()
    for name in weights[0]:
        torch.testing.assert_close(weights[0][name], weights[1][name])


def test_same_seed_gives_same_bits_with_dropout_too(tmp_path: Path) -> None:
    build = partial(toy.build, dropout=0.3)
    jobs = [toy.job(tmp_path / str(i), build=build, seed=s) for i, s in enumerate([5, 5, 6])]
    first, second, other = map(losses, jobs)
    assert first == second
    assert first != other


@pytest.mark.parametrize("build", [toy.build, toy.uneven])
def test_accumulated_micro_batches_equal_the_whole_batch(
    tmp_path: Path, build: Callable[[], Program]
) -> None:
    """Also where samples have different numbers of targets: each target counts the same."""
    whole = losses(toy.job(tmp_path / "whole", build=build))
    pieces = losses(toy.job(tmp_path / "pieces", build=build, micro_samples=2))
    assert pieces == pytest.approx(whole, rel=1e-5)


RAMP = ((3, 2), (4, 4))


@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
def test_a_growing_batch_trains_as_in_a_bare_loop(tmp_path: Path, zero_stage: int) -> None:
    """Of 2, 4, then 8 samples, 2 at a time: 1, 2, then 4 micro-batches a step."""
    job = toy.job(tmp_path, ramp=RAMP, micro_samples=2)
    expected, _ = bare_loop(job)
    assert losses(job, zero_stage=zero_stage) == pytest.approx(expected, rel=1e-5)
    assert [row["tokens"] // 5 for row in rows(job)] == [
        *(2, 4, 6, 10, 14, 18, 22, 30, 38, 46, 54, 62),
    ]


@pytest.mark.parametrize("break_at", [3, 9])
def test_a_growing_batch_stopped_in_the_middle_ends_with_the_same_losses(
    tmp_path: Path, break_at: int
) -> None:
    expected = losses(toy.job(tmp_path / "whole", ramp=RAMP, micro_samples=2))
    cut = toy.job(tmp_path / "cut", ramp=RAMP, micro_samples=2, checkpoint_seconds=1e-9)
    cut_short(cut, break_at)
    assert 0 < len(rows(cut)) < 7
    assert losses(cut) == expected


@pytest.mark.parametrize("zero_stage", [0, 2])
def test_z_loss_is_trained_on_and_told_apart_from_the_loss(tmp_path: Path, zero_stage: int) -> None:
    plain, kept = toy.network_job(tmp_path / "plain"), toy.network_job(tmp_path / "kept")
    kept = replace(kept, build=partial(toy.network, z_loss=0.1), micro_samples=4)
    entropies = losses(plain), losses(kept, zero_stage=zero_stage)
    assert entropies[0][0] == pytest.approx(entropies[1][0], rel=1e-6)
    assert entropies[0][-1] != entropies[1][-1]
    penalties = [row["z_loss"] for row in rows(kept)]
    uniform = 0.1 * math.log(13) ** 2  # of logits near 0
    assert penalties[0] == pytest.approx(uniform, rel=0.1)
    assert all("z_loss" not in row for row in rows(plain))


@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
def test_fp16_skips_the_steps_that_overflow_and_halves_its_scale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zero_stage: int
) -> None:
    monkeypatch.setattr(loss_scale, "FIRST", 2.0**20)
    exact = losses(toy.job(tmp_path / "fp32"))
    job = toy.job(tmp_path / "fp16", precision="fp16", steps=24)
    rough = losses(job, zero_stage=zero_stage)
    skipped = [row["step"] for row in rows(job) if row["grad_norm"] is None]
    assert 0 < len(skipped) < 12 and skipped == [*range(1, len(skipped) + 1)]
    scales = [row["loss_scale"] for row in rows(job)]
    assert scales[: len(skipped) + 1] == [2.0 ** (20 - n) for n in range(len(skipped) + 1)]
    assert set(scales[len(skipped) :]) == {scales[-1]}
    assert rough[0] == pytest.approx(exact[0], rel=0.01)
    assert rough[-1] < 0.9 * rough[0]
    assert {t.dtype for t in load_file(job.scratch / "weights.safetensors").values()} == {
        torch.float32
    }


@pytest.mark.parametrize("zero_stage", [0, 2])
def test_a_stopped_fp16_training_goes_on_with_its_scale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zero_stage: int
) -> None:
    monkeypatch.setattr(loss_scale, "FIRST", 2.0**20)
    monkeypatch.setattr(loss_scale, "WINDOW", 3)
    whole, cut = (
        toy.job(tmp_path / name, precision="fp16", steps=16, checkpoint_seconds=1e-9)
        for name in ("whole", "cut")
    )
    expected = losses(whole, zero_stage=zero_stage)
    cut_short(cut, 12, zero_stage=zero_stage)
    assert losses(cut, zero_stage=zero_stage) == expected
    for name in ("loss_scale", "grad_norm"):
        assert [row[name] for row in rows(cut)] == [row[name] for row in rows(whole)]


def test_a_training_goes_on_from_the_shared_store_where_its_node_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = losses(toy.job(tmp_path / "whole", checkpoint_seconds=1e-9))
    monkeypatch.setenv("HEADRACE_STORE", f"file://{tmp_path}/bucket")
    monkeypatch.setenv("HEADRACE_APART", str(tmp_path / "one"))
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "one"))
    cut = toy.job(home() / "work" / "toy", checkpoint_seconds=1e-9)
    cut_short(cut, 5)
    kept = complete(cut.scratch / CHECKPOINTS)
    assert 1 <= len(kept) <= 2 and not list((cut.scratch / CHECKPOINTS).glob("step-*"))
    shutil.rmtree(tmp_path / "one")
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "two"))
    assert losses(toy.job(home() / "work" / "toy", checkpoint_seconds=1e-9)) == expected


def test_bf16_stays_near_fp32_and_keeps_fp32_weights(tmp_path: Path) -> None:
    exact = losses(toy.job(tmp_path / "fp32"))
    job = toy.job(tmp_path / "bf16", precision="bf16")
    rough = losses(job)
    assert rough != exact
    assert rough == pytest.approx(exact, rel=0.01)
    assert {t.dtype for t in load_file(job.scratch / "weights.safetensors").values()} == {
        torch.float32
    }


def test_a_network_that_no_process_holds_trains_and_goes_on_as_one_that_it_does(
    tmp_path: Path,
) -> None:
    """Every weight is on the meta device until it is a shard, at first and from a checkpoint."""
    how: dict[str, Any] = {"checkpoint_seconds": 1e-9}
    whole, cut = (toy.job(tmp_path / name, build=toy.network, **how) for name in ("whole", "cut"))
    expected = losses(whole)
    cut_short(cut, 8, zero_stage=3)
    assert losses(cut, zero_stage=3) == pytest.approx(expected, rel=1e-5)
    weights = [load_file(job.scratch / WEIGHTS) for job in (whole, cut)]
    # The shards' sums are in another order, and Adam divides by what is nearly nothing where a
    # gradient is: half a percent of one step at the rate of .02. On a CPU without AVX-512 it shows.
    for name, weight in weights[0].items():
        torch.testing.assert_close(weights[1][name], weight, rtol=0, atol=1e-4)


@pytest.mark.parametrize("zero_stage", [2, 3])
def test_a_stopped_training_of_bf16_weights_goes_on_with_their_fp32_copies(
    tmp_path: Path, zero_stage: int
) -> None:
    whole, cut = (
        toy.job(tmp_path / name, precision="bf16_weights", checkpoint_seconds=1e-9)
        for name in ("whole", "cut")
    )
    expected = losses(whole, zero_stage=zero_stage)
    cut_short(cut, 8, zero_stage=zero_stage)
    assert losses(cut, zero_stage=zero_stage) == expected
    ends = [load_file(job.scratch / WEIGHTS) for job in (whole, cut)]
    assert all(torch.equal(weight, ends[1][name]) for name, weight in ends[0].items())
    assert {weight.dtype for weight in ends[0].values()} == {torch.float32}


def test_each_group_follows_the_schedule_from_its_own_peak(tmp_path: Path) -> None:
    scales = RateScales(embeddings=3, vectors=0.5)
    settings = OptimizerSettings(
        learning_rate=0.02, schedule="linear", warmup_steps=2, scales=scales
    )
    job = toy.job(tmp_path, steps=4, optimizer=settings)
    losses(job)
    for name, scale in (("", 1), ("/head", 1), ("/embeddings", 3), ("/vectors", 0.5)):
        expected = [0.02 * scale * factor(step, 4, settings) for step in (1, 2, 3, 4)]
        assert [row[f"lr{name}"] for row in rows(job)] == pytest.approx(expected)


def test_rows_count_steps_and_tokens(tmp_path: Path) -> None:
    job = toy.job(tmp_path)
    losses(job)
    assert [row["step"] for row in rows(job)] == list(range(1, 13))
    assert [row["tokens"] for row in rows(job)] == [8 * 5 * step for step in range(1, 13)]


def test_one_process_trains_several_jobs_after_each_other(tmp_path: Path) -> None:
    stages = [0, 3, 1, 0]
    found = [losses(toy.job(tmp_path / str(i)), zero_stage=z) for i, z in enumerate(stages)]
    assert found[3] == found[0]


def test_nan_stops_before_the_step_and_names_the_samples(tmp_path: Path) -> None:
    job = toy.job(tmp_path, build=partial(toy.build, poison=7))
    with pytest.raises(Diverged, match=r"step 7 of 12: loss nan.* samples 48 to 55"):
        launch(job, Placement())
    assert len(rows(job)) == 6


@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
def test_an_infinite_gradient_alone_stops_training(tmp_path: Path, zero_stage: int) -> None:
    job = toy.job(tmp_path, build=partial(toy.build, steep=3))
    with pytest.raises(Diverged, match=r"step 3 of 12: loss \d.*gradient norm (inf|nan)"):
        launch(job, Placement(zero_stage=zero_stage))
    assert len(rows(job)) == 2


POISONED = toy.batch(24 * 8, 8)["inputs"]


def poisoned(factor: float) -> Program:
    """A toy with one batch, that of step 25, whose loss is so many times too high."""
    program = toy.build()

    def harm(module: nn.Module, inputs: Any, named: dict[str, Any], loss: torch.Tensor) -> Any:
        return loss * factor if np.array_equal(named["inputs"], POISONED) else loss

    program.module.register_forward_hook(harm, with_kwargs=True)
    return program


@pytest.mark.parametrize("zero_stage", [0, 2])
@pytest.mark.parametrize("factor", [20.0, float("nan")])
@pytest.mark.parametrize("late", [False, True], ids=["at once", "read late"])
def test_a_poisoned_batch_is_rewound_and_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, factor: float, zero_stage: int, late: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(loop, "reads_late", lambda world: late)
    job = toy.job(
        tmp_path / "poisoned",
        build=partial(poisoned, factor),
        steps=60,
        most_skipped=2,
        checkpoint_seconds=0.01,
    )
    found = losses(job, zero_stage=zero_stage)
    clean = losses(toy.job(tmp_path / "clean", steps=60), zero_stage=zero_stage)
    assert read_skipped(job.scratch) == [25]
    assert "on samples 192 to 199: back to the newest checkpoint" in caplog.text
    assert found[:24] == clean[:24]
    assert found[-1] == pytest.approx(clean[-1], rel=0.01)


def test_too_many_poisoned_batches_end_training(tmp_path: Path) -> None:
    build = partial(toy.build, poison=3)  # in every attempt, so at another step each time
    job = toy.job(tmp_path, build=build, most_skipped=1, checkpoint_seconds=1e-6)
    with pytest.raises(Diverged, match=r"loss nan.*after 1 skipped batches \[3\]"):
        launch(job, Placement())


def test_a_step_in_the_place_of_a_skipped_batch_sees_the_one_before() -> None:
    assert [batch_of(step, [1, 4, 5]) for step in range(1, 8)] == [2, 2, 3, 3, 3, 6, 7]


def test_a_batch_that_cannot_be_shared_is_refused_with_what_can(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="8 samples cannot be shared by 3 workers; use 6 or 9"):
        launch(toy.job(tmp_path), Placement(workers=3))


def test_a_micro_batch_has_at_most_so_many_samples_and_divides_the_share(tmp_path: Path) -> None:
    found = [toy.job(tmp_path, micro_samples=n).share(1, 8) for n in (1, 3, 7, 100, None)]
    assert found == [(1, 8), (2, 4), (4, 2), (8, 1), (8, 1)]


class Recorder(NullTracker):
    def __init__(self) -> None:
        self.rows: list[int] = []
        self.files: list[Path] = []

    def file(self, path: Path) -> None:
        self.files.append(path)

    def metrics(self, rows: Any) -> None:
        self.rows += [row["step"] for row in rows]


def test_tracker_gets_every_row_once_and_progress_comes_along(tmp_path: Path) -> None:
    tracker, seen = Recorder(), []

    def watch(done: int, total: int, unit: str, **figures: float) -> None:
        seen.append((done, total, unit, sorted(figures)))

    job = toy.job(tmp_path, tracker=tracker, on_progress=watch, checkpoint_seconds=1e-6)
    losses(job)
    assert tracker.rows == list(range(1, 13))
    assert seen[4] == (5, 12, "steps", ["loss", "tokens_per_second"])


def test_a_finished_job_is_not_trained_again(tmp_path: Path) -> None:
    job = toy.job(tmp_path)
    weights = launch(job, Placement())
    before = weights.stat().st_mtime_ns
    launch(replace(job, build=partial(toy.build, poison=1)), Placement())
    assert weights.stat().st_mtime_ns == before


def test_nothing_is_left_of_checkpoints_older_than_two(tmp_path: Path) -> None:
    job = toy.job(tmp_path, checkpoint_seconds=1e-6)
    losses(job)
    assert sorted(p.name for p in (tmp_path / CHECKPOINTS).iterdir()) == [
        "step-00000010",
        "step-00000011",
    ]


@pytest.mark.parametrize(
    ("placement", "exact"),
    [
        ({"activation_checkpointing": "whole"}, True),
        ({"activation_checkpointing": "selective"}, True),
        ({"compile": True}, True),
        pytest.param({"compile": True}, False, marks=pytest.mark.slow),
        ({"zero_stage": 2, "offload": "optimizer"}, False),
        ({"zero_stage": 3, "offload": "all", "activation_checkpointing": True}, False),
    ],
)
def test_less_memory_and_compiled_layers_change_no_loss(
    tmp_path: Path, placement: dict[str, Any], exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiling = partial(torch.compile, backend="eager" if exact else "inductor")  # takes a minute
    compiled = []

    def compile_with(call: Any, **how: Any) -> Any:
        compiled.append(call.__name__)
        return compiling(call, **how)

    monkeypatch.setattr(torch, "compile", compile_with)
    plain, other = (toy.network_job(tmp_path / name) for name in ("plain", "other"))
    expected = losses(plain)
    found = losses(other, **placement)
    assert ("layers" in compiled) == ("compile" in placement)
    assert found == (expected if exact else pytest.approx(expected, rel=1e-5))


def test_offload_needs_what_is_sharded() -> None:
    with pytest.raises(ValueError, match="offload is 'all', which needs zero_stage 3 or more"):
        Placement(offload="all", zero_stage=2)


def test_rows_tell_the_speed_and_where_a_step_spends_its_time(tmp_path: Path) -> None:
    job = toy.job(tmp_path, flops_per_token=1e3)
    losses(job)
    for row in rows(job):
        assert row["flops_per_second"] == pytest.approx(1e3 * row["tokens_per_second"], rel=0.01)
        assert 0 <= row["data_seconds"] + row["update_seconds"] <= row["seconds"]
        assert 0 <= row["mfu"] < 1
        assert row["memory_bytes"] > 50e6


def test_some_steps_are_traced_on_request(tmp_path: Path) -> None:
    tracker = Recorder()
    job = toy.job(tmp_path, tracker=tracker)
    losses(job, profile_steps=2)
    assert tracker.files == [job.trace]
    events = json.loads(gzip.decompress(job.trace.read_bytes()))["traceEvents"]
    steps = {e["name"] for e in events if e["name"].startswith("ProfilerStep")}
    assert steps == {"ProfilerStep#4", "ProfilerStep#5"}
    assert {"aten::mm", "aten::embedding"} <= {event["name"] for event in events}


def test_a_step_that_hangs_and_keeps_the_interpreters_lock_ends_its_process_and_says_where(
    tmp_path: Path,
) -> None:
    code = (
        "import time; from pathlib import Path; from cluster.placement import Placement;"
        "from tests.training import toy; from tasks.training.launch import launch;"
        f"launch(toy.job(Path({str(tmp_path)!r}), build=toy.hanging), Placement(hang_seconds=2))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 1
    assert "Timeout (0:00:02)" in ended.stderr and "in hold_for_ever" in ended.stderr
    assert len(rows(toy.job(tmp_path))) == 3


@pytest.mark.parametrize("zero_stage", [0, 1])
def test_figures_that_are_read_a_step_late_are_the_same(
    tmp_path: Path, zero_stage: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, which is not waited for."""
    how = {"checkpoint_seconds": 1e-6, "steps": 12}
    at_once = toy.job(tmp_path / "at-once", **how)
    launch(at_once, Placement(zero_stage=zero_stage))
    late = toy.job(tmp_path / "late", **how)
    monkeypatch.setattr(loop, "reads_late", lambda world: True)
    weights = load_file(launch(late, Placement(zero_stage=zero_stage)))
    kept = ("step", "loss", "grad_norm", "lr", "tokens")
    assert [{k: r[k] for k in kept} for r in rows(late)] == [
        {k: r[k] for k in kept} for r in rows(at_once)
    ]
    for name, weight in load_file(at_once.scratch / WEIGHTS).items():
        assert torch.equal(weights[name], weight), name


def hungry(most: int) -> Program:
    """A toy that has room for so many samples at a time."""
    program = toy.build()

    def refuse(module: nn.Module, inputs: Any, named: dict[str, Any]) -> None:
        if len(named["inputs"]) > most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    program.module.register_forward_pre_hook(refuse, with_kwargs=True)
    return program


@pytest.mark.parametrize(
    ("harm", "placement"),
    [(partial(hungry, 2), Placement()), (partial(toy.build, poison=7), Placement(zero_stage=2))],
    ids=["out of memory", "a poisoned batch"],
)
def test_nothing_of_an_attempt_is_held_while_the_next_one_begins(
    tmp_path: Path, harm: Callable[[], Program], placement: Placement
) -> None:
    """A device has room for one engine: an error holds frames, and DeepSpeed circles."""
    made: list[weakref.ref[nn.Module]] = []

    def build() -> Program:
        assert all(one() is None for one in made)
        program = toy.build() if made else harm()
        made.append(weakref.ref(program.module))
        return program

    launch(toy.job(tmp_path, build=build, most_skipped=1), placement)
    assert len(made) == 2


def test_out_of_memory_it_goes_on_with_fewer_samples_at_a_time_and_says_the_setting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = losses(toy.job(tmp_path / "hungry", build=partial(hungry, 2)))
    expected = losses(toy.job(tmp_path / "plain"))
    assert found == pytest.approx(expected, rel=1e-5)
    assert "with 4 samples at a time: going on with 2; placement.micro_batch_tokens" in caplog.text
    with pytest.raises(StageFailed, match=r"of rank 0 is out of memory .*: lower placement\.micro"):
        launch(toy.job(tmp_path / "starved", build=partial(hungry, 0)), Placement())
