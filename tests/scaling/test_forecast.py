import csv
import math

import numpy as np
import pytest

from cluster.artifact import Artifact
from cluster.stage import build
from cluster.store import Spec, Store
from tasks.scaling.fit import fit_file
from tasks.scaling.forecast import FitSettings, fit
from tasks.scaling.laws import LAWS

THETA = [*np.log([1.7, 30, 60]), 0.34, 0.36]
QUICK = FitSettings(bootstrap=30)


def run(store, label, params, tokens, loss=None, **facts):
    """A finished run of a sweep; one without a loss diverged."""
    spec = Spec("sweep", 1, "mine", {"label": label}, {}, label)
    with store.writer(spec), store.draft(spec) as draft:
        draft.metrics = {"params": params, "tokens": tokens, "flops": 6 * params * tokens}
        if loss is not None:
            draft.metrics |= {"loss": loss, "bits_per_byte": loss / math.log(2) / 3}
        draft.facts = facts
    return Artifact.load(store.folder(spec))


def grid(store, sizes, lengths, noise=0.0):
    generator, runs = np.random.default_rng(0), []
    for params in sizes:
        for tokens in lengths:
            at = {"params": np.array([params]), "tokens": np.array([tokens])}
            loss = np.exp(LAWS["chinchilla"].evaluate(np.array([THETA]), at)[0][0, 0])
            loss *= math.exp(generator.normal(0, noise)) if noise else 1
            runs.append(run(store, f"n{params:g}-d{tokens:g}", params, tokens, float(loss)))
    return runs


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def test_the_largest_run_is_held_out_and_predicted(store):
    runs = grid(store, [1e4, 4e4, 1.6e5, 6.4e5], [1e5, 4e5, 1.6e6])
    facts = build(fit, store, runs=runs, settings=QUICK).manifest.facts
    forecast = facts["forecast"]
    assert (forecast["params"], forecast["tokens"]) == (6.4e5, 1.6e6)
    assert facts["fit"]["n"] == 11
    first, power, best = forecast["predictions"]
    assert (first["by"], power["by"], best["by"]) == (
        "chinchilla",
        "power in compute",
        "best run so far",
    )
    assert first["error"] == pytest.approx(0, abs=1e-4)
    assert abs(first["error"]) < abs(power["error"]) < abs(best["error"])
    assert forecast["inside"]
    assert forecast["reach"] == pytest.approx(4)
    assert facts["identifiable"]


def test_noise_of_seeds_widens_the_band(store):
    runs = grid(store, [1e4, 4e4, 1.6e5, 6.4e5], [1e5, 4e5, 1.6e6])
    clean, noisy = (
        build(fit, store, runs=runs, settings=FitSettings(bootstrap=30, noise=noise))
        for noise in (0.0, 0.01)
    )
    low, high = (noisy.manifest.facts["forecast"]["predictions"][0][k] for k in ("low", "high"))
    assert math.log(high / low) == pytest.approx(3.3 * 0.01, rel=0.4)
    first = clean.manifest.facts["forecast"]["predictions"][0]
    assert first["high"] - first["low"] < 0.1 * (high - low)


def test_six_runs_are_reported_with_doubt(store):
    runs = grid(store, [2e4, 4e4], [1e5, 2e5, 4e5], noise=0.005)
    facts = build(fit, store, runs=runs, settings=QUICK).manifest.facts
    assert not facts["identifiable"]
    assert facts["fit"]["n"] == 5
    assert "5 runs for 5 parameters leave nothing to judge the fit by" in facts["warnings"]
    assert "params take only 2 value(s), the law needs at least 3" in facts["warnings"]
    assert facts["power"]["a"] < 0


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_very_few_runs_never_raise(store, count):
    runs = grid(store, [2e4, 4e4], [1e5, 2e5])[:count]
    facts = build(fit, store, runs=runs, settings=QUICK).manifest.facts
    assert not facts["identifiable"]
    held = count > 2
    assert f"chinchilla has 5 parameters, {count - held} runs" in facts["warnings"][0]
    assert (facts["forecast"] is not None) == held
    assert (facts["power"] is not None) == (count > 1)


def test_a_diverged_run_takes_no_part_and_is_never_the_best(store):
    runs = grid(store, [1e4, 4e4, 1.6e5], [1e5, 4e5, 1.6e6])
    why = "step 3 of 9: loss nan"
    bad = [
        run(store, "worse", 1e4, 1e5, status="diverged", why=why),
        run(store, "odd", 1e4, 1e5, 0.001, status="diverged", why=why),
    ]
    artifact = build(fit, store, runs=[*bad, *runs], settings=QUICK)
    facts = artifact.manifest.facts
    assert facts["best"] == "n160000-d1.6e+06"
    assert facts["fit"]["n"] == 8
    assert [r["status"] for r in facts["runs"]] == ["diverged"] * 2 + ["finished"] * 9
    assert f"worse takes no part: {why}" in facts["warnings"]
    with artifact.file("runs.csv").open() as file:
        assert "worse" not in {row["name"] for row in csv.DictReader(file)}


def test_all_runs_diverged(store):
    runs = [run(store, f"r{i}", 1e4, 1e5) for i in range(3)]
    facts = build(fit, store, runs=runs, settings=QUICK).manifest.facts
    assert (facts["best"], facts["power"], facts["forecast"]) == (None, None, None)
    assert "r0 takes no part: no held-out loss was recorded" in facts["warnings"]


def test_the_table_of_runs_can_be_fitted_again(store):
    runs = grid(store, [1e4, 4e4, 1.6e5], [1e5, 4e5, 1.6e6])
    settings = FitSettings(holdout=False, bootstrap=0)
    artifact = build(fit, store, runs=runs, settings=settings)
    again = fit_file(artifact.file("runs.csv"), "chinchilla")
    assert again == artifact.read_json("fit.json")["fit"]
    assert again["E"] == pytest.approx(1.7, rel=1e-4)
