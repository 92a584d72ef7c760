import csv
import math
import time

import numpy as np
import pytest

from cluster.artifact import Artifact
from cluster.stage import build
from cluster.store import Spec, Store
from tasks.scaling.law.diagnostics import collapse
from tasks.scaling.law.fit_file import fit_file
from tasks.scaling.law.laws import LAWS
from tasks.scaling.law.settings import FitSettings
from tasks.scaling.law.stage import fit, forecast

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


def compared(store, runs, held, settings=QUICK):
    """The facts of a forecast of one run from the others."""
    law = build(fit, store, runs=runs, targets=[target(held)], settings=settings)
    return build(forecast, store, fit=law, runs=[held]).manifest.facts


def target(run):
    metrics = run.manifest.metrics
    return {"name": run.manifest.label} | {k: metrics[k] for k in ("params", "tokens", "flops")}


def test_a_larger_run_is_predicted_and_compared(store):
    *runs, held = grid(store, [1e4, 4e4, 1.6e5, 6.4e5], [1e5, 4e5, 1.6e6])
    facts = compared(store, runs, held)
    (told,) = facts["forecast"]["targets"]
    assert (told["params"], told["tokens"]) == (6.4e5, 1.6e6)
    assert facts["fit"]["n"] == 11
    first, power, best = told["predictions"]
    assert (first["by"], power["by"], best["by"]) == (
        "chinchilla",
        "power in compute",
        "best run so far",
    )
    assert first["error"] == pytest.approx(0, abs=1e-4)
    assert abs(first["error"]) < abs(power["error"]) < abs(best["error"])
    assert told["inside"]
    assert told["reach"] == pytest.approx(4)
    assert facts["forecast"]["mean_error"] == pytest.approx(first["error"])
    assert facts["identifiable"]


def test_a_prediction_older_than_its_run_is_told_from_a_later_one(store):
    *runs, held = grid(store, [1e4, 4e4, 1.6e5], [1e5, 4e5, 1.6e6])
    late = compared(store, runs, held)
    law = build(fit, store, runs=runs, targets=[target(held)], settings=QUICK)
    time.sleep(1.1)  # manifests tell seconds apart
    again = run(store, "n160000-d1.6e+06 again", 1.6e5, 1.6e6, held.manifest.metrics["loss"])
    early = build(forecast, store, fit=law, runs=[again]).manifest.facts
    assert early["forecast"]["beforehand"]
    assert late["forecast"]["targets"][0]["measured"] == held.manifest.metrics["loss"]


def test_noise_of_seeds_and_error_of_the_law_widen_the_band(store):
    """Of so few runs no budget can be left out, so that the settings alone say what to expect."""
    *runs, held = grid(store, [1e4, 4e4, 1.6e5], [1e5, 4e5, 1.6e6])

    def width(**settings):
        facts = compared(store, runs, held, FitSettings(bootstrap=30, **settings))
        first = facts["forecast"]["targets"][0]["predictions"][0]
        return math.log(first["high"] / first["low"])

    # Noise is that of the run foretold and of those that the law was fitted to.
    assert 3.3 * 0.01 < width(noise=0.01, drift=0) < 15 * 0.01
    assert 3.3 * 0.01 < width(noise=0, drift=0.01) / math.log(4) < 6 * 0.01
    assert width(noise=0, drift=0) < 0.003


def test_a_cut_forecasts_from_farther_away(store):
    *runs, held = grid(store, [1e4, 4e4, 1.6e5, 6.4e5], [1e5, 4e5, 1.6e6], noise=0.003)
    facts = compared(store, runs, held, FitSettings(bootstrap=30, cuts=(4e11,)))
    assert facts["cuts"][0]["n"] == 9
    assert facts["forecast"]["targets"][0]["predictions"][3]["by"] == "chinchilla, runs up to 4e+11"


def test_a_badly_trained_run_is_named_and_what_decides_the_fit_is_listed(store):
    *runs, held = grid(store, [1e4, 4e4, 1.6e5, 6.4e5], [1e5, 2e5, 4e5, 8e5, 1.6e6], noise=0.002)
    good = runs[7].manifest
    figures = (good.metrics["params"], good.metrics["tokens"], good.metrics["loss"] * 1.02)
    runs[7] = run(store, "bad", *figures)
    law = build(fit, store, runs=runs, targets=[target(held)], settings=QUICK)
    facts = law.manifest.facts
    assert facts["suspects"] == ["bad"]
    assert any(w.startswith("bad lies") for w in facts["warnings"])
    assert {r["run"] for r in facts["influence"]} == {r["name"] for r in facts["runs"]}
    assert {"fit", "E", "A", "alpha", "prediction"} <= set(facts["sensitivity"][0])
    assert facts["next_runs"][0]["per_flop"] == 1
    assert [r["a"] for r in facts["exponents"] if r["approach"] == "3 law"] == pytest.approx(
        [0.36 / 0.7] * 2, abs=0.08
    )
    for name in ("residuals.csv", "sensitivity.csv", "curve_flops.csv"):
        assert law.file(name).read_text().count("\n") > 5


def test_the_curve_of_a_badly_trained_run_ends_above_those_that_collapse():
    share = np.linspace(0.01, 1, 100)
    curves, ends = {}, {}
    for tokens in (1e5, 4e5, 1.6e6):
        loss = 1.7 + 60 / (share * tokens) ** 0.36
        rows = [{"step": n + 1.0, "loss": value - 0.1} for n, value in enumerate(loss)]  # seen text
        for name, bad in ((f"d{tokens:g}", 1.0), (f"d{tokens:g} bad", 1.02)):
            curves[name] = rows
            ends[name] = (loss[-1] * bad, loss[-1])
    found = collapse(curves | {"short": rows[:5]}, ends, 1.7)
    assert set(found) == {"share", *ends}
    for name, (measured, fitted) in ends.items():
        assert found[name][-1] == pytest.approx((measured - 1.7) / (fitted - 1.7), rel=1e-6)
        assert (found[name][-1] > 1.05) == name.endswith("bad")
    good = np.array([found[name] for name in ends if not name.endswith("bad")])
    assert np.ptp(good, axis=0).max() < 1e-6  # of one law they lie on one another


def test_six_runs_are_reported_with_doubt(store):
    *runs, held = grid(store, [2e4, 4e4], [1e5, 2e5, 4e5], noise=0.005)
    facts = compared(store, runs, held)
    assert not facts["identifiable"]
    assert facts["fit"]["n"] == 5
    assert "5 runs for 5 parameters leave nothing to judge the fit by" in facts["warnings"]
    assert "params take only 2 value(s), the law needs at least 3" in facts["warnings"]
    assert facts["power"]["a"] < 0


@pytest.mark.parametrize("count", [1, 2, 3])
def test_very_few_runs_never_raise(store, count):
    *runs, held = grid(store, [2e4, 4e4], [1e5, 2e5])[: count + 1]
    facts = compared(store, runs, held)
    assert not facts["identifiable"]
    assert f"chinchilla has 5 parameters, {count} runs" in facts["warnings"][0]
    assert (facts["power"] is not None) == (count > 1)


def test_a_diverged_run_takes_no_part_and_is_never_the_best(store):
    runs = grid(store, [1e4, 4e4, 1.6e5], [1e5, 4e5, 1.6e6])
    why = "step 3 of 9: loss nan"
    bad = [
        run(store, "worse", 1e4, 1e5, status="diverged", why=why),
        run(store, "odd", 1e4, 1e5, 0.001, status="out of memory", why=why),
    ]
    artifact = build(fit, store, runs=[*bad, *runs], targets=[], settings=QUICK)
    facts = artifact.manifest.facts
    assert facts["best"] == "n160000-d1.6e+06"
    assert facts["fit"]["n"] == 9
    found = [r["status"] for r in facts["runs"]]
    assert found == ["diverged", "out of memory"] + ["finished"] * 9
    assert f"worse takes no part: {why}" in facts["warnings"]
    with artifact.file("runs.csv").open() as file:
        assert "worse" not in {row["name"] for row in csv.DictReader(file)}


def test_all_runs_diverged(store):
    runs = [run(store, f"r{i}", 1e4, 1e5) for i in range(3)]
    facts = compared(store, runs[:2], runs[2])
    assert (facts["best"], facts["power"]) == (None, None)
    assert facts["forecast"]["mean_error"] is None
    assert "r0 takes no part: no held-out loss was recorded" in facts["warnings"]
    assert "r2 has no loss: no held-out loss was recorded" in facts["warnings"]


def test_runs_of_one_budget_have_no_power_in_compute(store):
    """Their costs differ by rounding alone."""
    shapes = [(1e4, 3.2), (2e4, 3.1), (4e4, 3.0)]
    budget = [
        run(store, f"n{n:g}", n, 1e10 * (1 + i * 1e-9) / n, x) for i, (n, x) in enumerate(shapes)
    ]
    facts = compared(store, budget, run(store, "held", 1e5, 1e7, 2.5))
    (target,) = facts["forecast"]["targets"]
    assert facts["power"] is None
    assert [guess["by"] for guess in target["predictions"]] == ["best run so far"]


def test_the_table_of_runs_can_be_fitted_again(store):
    runs = grid(store, [1e4, 4e4, 1.6e5], [1e5, 4e5, 1.6e6])
    artifact = build(fit, store, runs=runs, targets=[], settings=FitSettings(bootstrap=0))
    again = fit_file(artifact.file("runs.csv"), "chinchilla")
    first = artifact.read_json("fit.json")["fit"]
    assert again["objective"] == pytest.approx(first["objective"], abs=1e-12)
    assert again["E"] == pytest.approx(1.7, rel=1e-4)
