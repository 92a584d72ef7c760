"""A run of a sweep, trained for real on a made-up language of which the loss is known."""

import json
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cluster.artifact import Artifact
from cluster.stage import build, specify, stage
from cluster.store import Draft, Store
from model.flops import flops_per_token, parameter_count
from model.shapes import from_depth
from tasks.scaling.law.settings import FitSettings
from tasks.scaling.law.stage import fit, forecast, row
from tasks.scaling.sweep.member import sweep_run
from tasks.scaling.sweep.plan import SweepSettings, plan_sweep
from tasks.scaling.sweep.trunk import branch_off, trunk
from tasks.tokens.shards.writer import ShardWriter
from tasks.training.checkpoint import complete, read
from tasks.training.job import CHECKPOINTS
from tasks.training.outcome import out_of_memory
from tasks.training.settings import OptimizerSettings
from tests.tokens.made import append

VOCABULARY, CONTEXT = 16, 16


def labelled(function: Callable[..., None], store: Store, label: str, **arguments: Any) -> Artifact:
    """A member of a sweep, as it is planned: its label tells it from the others."""
    inputs = {key: a.fingerprint for key, a in arguments.items() if isinstance(a, Artifact)}
    literals = {key: value for key, value in arguments.items() if key not in inputs}
    spec = specify(function, "test", inputs, literals, label)
    return build(function, store, spec=spec, **arguments)


@stage(version=1, name="shards")
def write_shards(seed: int, draft: Draft) -> None:
    """Documents in which each token is followed by one of two, so its best loss is near ln 2."""
    generator = np.random.default_rng(seed)
    with ShardWriter(draft.path, ["train", "heldout"], VOCABULARY, 1 << 20) as writer:
        for split, documents in (("train", 60), ("heldout", 12)):
            for number in range(documents):
                steps = generator.integers(1, 3, 100).cumsum() % (VOCABULARY - 1) + 1
                ids = [*steps.tolist(), 0]
                append(writer, split, ids, size=200, document=f"{split}/{number}", source="made")
    draft.facts = writer.facts(0).noted()


def sweep_settings(**changes):
    values = {
        "widths": (16,),
        "depth": 1,
        "head_dim": 8,
        "tokens": (12_800,),
        "context": CONTEXT,
        "batch_tokens": 128,
        "heldout_tokens": 512,
    }
    return SweepSettings(**values | changes)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return Store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def shards(store):
    return build(write_shards, store, seed=0)


@pytest.fixture(scope="module")
def member(store, shards):
    settings = plan_sweep(sweep_settings(), VOCABULARY).members[0]
    return labelled(sweep_run, store, settings.label, shards=shards, settings=settings, seed=0)


def test_a_run_learns_and_says_what_it_cost(member):
    metrics, facts = member.manifest.metrics, member.manifest.facts
    config = from_depth(1, vocab_size=VOCABULARY, context=CONTEXT, width=16, heads=2)
    assert metrics["params"] == parameter_count(config)
    assert metrics["tokens"] == member.manifest.tokens == 12_800
    assert metrics["flops"] == flops_per_token(config, CONTEXT) * 12_800
    assert math.log(2) < metrics["loss"] < 1.5 < math.log(VOCABULARY)
    assert metrics["bits_per_byte"] == pytest.approx(
        metrics["loss"] / math.log(2) * 101 / 200, rel=1e-6
    )
    assert (facts["status"], facts["steps"], facts["why"]) == ("finished", 100, "")
    rows = member.file("metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in rows] == list(range(1, 101))
    assert metrics["seconds"] > 0


def test_the_same_run_again_is_the_same_to_the_bit(store, shards, member):
    settings = plan_sweep(sweep_settings(), VOCABULARY).members[0]
    again = build(sweep_run, store, shards=shards, settings=settings, seed=0, force=True)
    assert again.manifest.metrics["loss"] == member.manifest.metrics["loss"]


def test_a_run_that_diverges_is_kept_with_its_reason_and_no_loss(store, shards):
    wild = OptimizerSettings(learning_rate=1e30, clip=None, schedule="constant", warmup_steps=0)
    settings = plan_sweep(sweep_settings(optimizer=wild), VOCABULARY).members[0]
    bad = build(sweep_run, store, shards=shards, settings=settings, seed=0)
    assert "loss" not in bad.manifest.metrics
    assert bad.manifest.facts["status"] == "diverged"
    assert bad.manifest.facts["why"]
    assert row(bad)["loss"] is None


def test_a_run_that_branches_off_a_trunk_is_the_run_from_scratch_to_the_bit(store, shards):
    short, long = plan_sweep(sweep_settings(tokens=(6_400, 12_800)), VOCABULARY).members
    first = labelled(trunk, store, "a", shards=shards, settings=short.trunk(), seed=0)
    second = labelled(trunk, store, "b", shards=shards, settings=long.trunk(), seed=0, before=first)
    branched = build(sweep_run, store, shards=shards, settings=long, seed=0, trunk=second)
    scratch = build(sweep_run, store, shards=shards, settings=long, seed=0)
    assert branched.manifest.metrics["loss"] == scratch.manifest.metrics["loss"]
    assert branched.manifest.metrics["tokens"] == scratch.manifest.metrics["tokens"] == 12_800
    own = branched.manifest.metrics["flops_own"] / branched.manifest.metrics["flops"]
    assert own == pytest.approx(0.2)
    rows = branched.file("metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in rows] == list(range(1, 101))


def test_a_trunk_is_found_on_nodes_with_homes_of_their_own(store, shards, tmp_path, monkeypatch):
    short, long = plan_sweep(sweep_settings(tokens=(6_400, 12_800)), VOCABULARY).members
    first = labelled(trunk, store, "a", shards=shards, settings=short.trunk(), seed=0)
    monkeypatch.setenv("HEADRACE_STORE", f"file://{tmp_path}/bucket")
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    monkeypatch.setenv("HEADRACE_APART", str(tmp_path))
    draft = SimpleNamespace(scratch=tmp_path / "work" / "sweep-long")
    branch_off(first, long.training, draft)
    (begun,) = complete(draft.scratch / CHECKPOINTS)
    assert read(begun).step == short.trunk().training.steps


def test_runs_of_a_trunk_that_diverged_say_so(store, shards):
    wild = OptimizerSettings(learning_rate=1e30, clip=None, warmup_steps=0, cooldown_share=0.2)
    (member,) = plan_sweep(sweep_settings(optimizer=wild), VOCABULARY).members
    bad = labelled(trunk, store, "wild", shards=shards, settings=member.trunk(), seed=0)
    run = labelled(sweep_run, store, "w", shards=shards, settings=member, seed=0, trunk=bad)
    assert run.manifest.facts["status"] == "diverged"
    assert (
        "its trunk wild: step 1 of" in run.manifest.facts["why"]
        or "step" in run.manifest.facts["why"]
    )
    assert row(run)["loss"] is None


def test_out_of_memory_is_told_from_other_errors(store, shards, monkeypatch):
    assert out_of_memory(MemoryError())
    assert out_of_memory(RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"))
    assert not out_of_memory(RuntimeError("size mismatch"))


def test_a_sweep_reaches_its_forecast(store, shards):
    plan = plan_sweep(sweep_settings(widths=(8, 16), tokens=(3200, 6400)), VOCABULARY)
    runs = [
        labelled(sweep_run, store, m.label, shards=shards, settings=m, seed=0) for m in plan.members
    ]
    held = runs[-1].manifest
    goal = {"name": held.label} | {k: held.metrics[k] for k in ("params", "tokens", "flops")}
    settings = FitSettings(bootstrap=10)
    law = build(fit, store, runs=runs[:-1], targets=[goal], settings=settings)
    facts = build(forecast, store, fit=law, runs=runs[-1:]).manifest.facts
    assert [r["name"] for r in facts["runs"]] == [m.label for m in plan.members]
    assert facts["forecast"]["targets"][0]["name"] == "d16-t6.4k"
    assert not facts["identifiable"]
