"""Recipes sized to hours or dollars, and runs that end when these are spent."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from prefect.states import Failed

from cluster.errors import BadInput
from cluster.placement import Placement
from flows import execution
from flows.execution import Run
from flows.plan.at_hand import planned
from flows.plan.budget import PUBLISHED, Budget, Cap, sized, sizes
from flows.plan.estimate import estimate
from flows.plan.schedule import Host
from flows.plan.sweep_estimate import paid_by
from flows.queueing import Queue
from flows.recipe import Recipe, load
from model.flops import parameter_count
from tests.shell import headrace

HOSTS = [Host(2)]
FREE = ("sweep=null", "classify=null", "instruct=null")


def dialled(*said: str) -> Recipe:
    """A recipe of whose network only the depth is given."""
    return load("smoke", [*FREE, "model={depth: 2}", "pretrain.context=128", *said])


def params(recipe: Recipe) -> int:
    config = recipe.model.config(recipe.tokenizer.vocab_size, recipe.pretrain.context)
    return parameter_count(config)


def test_hours_are_filled_and_not_passed(fresh_home: Path) -> None:
    found = sized(dialled(), Budget(hours=0.25), HOSTS)
    assert 0.9 * 900 <= estimate(found, hosts=HOSTS)["seconds"] <= 900
    assert found.placement.max_hours == 0.25
    assert found.pretrain.tokens % found.pretrain.batch_tokens == 0


@pytest.mark.parametrize(("budget", "key"), [("5min", "seconds"), ("1device-hours", "devices")])
def test_a_sweep_takes_the_time_that_it_is_designed_for(
    fresh_home: Path, budget: str, key: str
) -> None:
    found = estimate(paid_by(budget, load("scaling-small", FREE[1:]), HOSTS), hosts=HOSTS)["sweep"]
    devices = sum(found["stage_seconds"].values())
    took, paid = (found["seconds"], 300) if key == "seconds" else (devices, 3600)
    assert 0.8 * paid <= took <= paid


def test_a_budget_too_small_for_a_sweep_is_refused(fresh_home: Path) -> None:
    with pytest.raises(BadInput, match=r"--budget 1s: a budget of .* is too small for three sizes"):
        paid_by("1s", load("scaling-small", FREE[1:]), HOSTS)
    with pytest.raises(BadInput, match="--budget plans a sweep, and recipe 'smoke' has none"):
        paid_by("2h", load("smoke", FREE), HOSTS)


def test_dollars_are_those_of_all_workers_that_are_busy_at_once(fresh_home: Path) -> None:
    found = sized(dialled("placement.usd_per_hour=4"), Budget(usd=1), HOSTS)
    plan = estimate(found, hosts=HOSTS)
    assert 0.9 <= plan["cost"] <= 1.001
    assert sizes(found)["placement"] == {"max_usd": 1}


def test_more_time_makes_a_deeper_network_about_as_the_law_says(fresh_home: Path) -> None:
    small, large = (sized(dialled(), Budget(hours=hours), HOSTS) for hours in (0.1, 100))
    assert (large.model.depth or 0) > (small.model.depth or 0)
    assert large.pretrain.tokens > small.pretrain.tokens
    # At the optimum the last parameter and the last token are worth the same.
    size, law = params(large), PUBLISHED
    worth = [
        law["alpha"] * law["A"] / size ** law["alpha"],
        law["beta"] * law["B"] / large.pretrain.tokens ** law["beta"],
    ]
    assert 1 / 3 < worth[0] / worth[1] < 3


def test_a_network_of_a_given_shape_keeps_it(fresh_home: Path) -> None:
    found = sized(dialled("model={depth: 2, width: 32, heads: 2}"), Budget(hours=10), HOSTS)
    assert found.model.depth == 2


def test_what_does_not_fit_and_dollars_without_a_price_are_refused(fresh_home: Path) -> None:
    with pytest.raises(BadInput, match="do not pay for recipe 'smoke' with any training"):
        sized(dialled(), Budget(hours=0.001), HOSTS)
    with pytest.raises(BadInput, match=r"usd_per_hour is 0.*set it to the price of a worker"):
        sized(dialled(), Budget(usd=5), HOSTS)


def test_a_run_at_its_cap_starts_nothing_more_and_says_so(
    shared_home: Path, tmp_path: Path
) -> None:
    (tmp_path / "text.txt").write_text("Water runs down to the mill.\n")
    said = ["--set", f"sources=[{tmp_path}/text.txt]", "--set", "placement.max_hours=1e-6"]
    done = headrace("data", "smoke", *said, "--json")
    told: dict[str, Any] = json.loads(done.stdout)
    assert (done.returncode, told["status"]) == (1, "failed"), done.stderr
    first, *others = told["stages"]
    assert first["state"] == "failed" and "its cap of 0.0 s (placement.max_hours" in first["error"]
    assert "the same command goes on" in first["error"]
    assert {stage["state"] for stage in others} == {"skipped"}


def test_what_runs_at_the_cap_is_ended_and_has_failed_for_that(
    fresh_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a run is stopped, so that a training leaves its checkpoint."""
    ended: list[str] = []
    monkeypatch.setattr(execution, "end_tasks", ended.extend)
    dag = planned("data", dialled())
    read = dag.nodes[0]
    run = Run(dag, Placement(), None, Queue(dag, str), Cap(0.0, Budget(hours=1)))
    monkeypatch.setattr(run, "_references", lambda nodes: {node.name: node for node in nodes})
    run.handles[read.name] = Failed(message="under way")
    run.check_cap()
    assert ended == ["read"] and "its cap of 1 h" in str(run.handles["read"].message)
    assert run.start(read) is run.handles["read"]


def test_a_run_before_its_cap_goes_on(fresh_home: Path) -> None:
    dag = planned("data", dialled())
    run = Run(dag, Placement(), None, Queue(dag, str), Cap(time.monotonic() + 60, Budget(hours=1)))
    run.check_cap()
    assert run.refused is None
