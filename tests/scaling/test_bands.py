"""What a law says of runs it has not seen, and which of those it has seen it doubts."""

import numpy as np
import pytest

from tasks.scaling.law.diagnostics import suspects
from tasks.scaling.law.fit import Fitted, point, problem_of
from tasks.scaling.law.fit_file import fit_columns
from tasks.scaling.law.laws import LAWS
from tasks.scaling.law.prediction import predict
from tasks.scaling.law.robust import best_of_starts
from tests.scaling.test_fit import planted

THETA = np.array([*np.log([1.7, 400, 2000]), 0.34, 0.36])


def budgets(noise, seed=0, first=1e18, count=6, sizes=5):
    """IsoFLOP runs of a law, half a decade apart, and the mask of the last budget."""
    flops = np.repeat(first * 10 ** (0.5 * np.arange(count)), sizes)
    params = np.sqrt(flops / 120) * np.tile(np.geomspace(0.25, 4, sizes), count)
    columns = {"params": params, "tokens": flops / 6 / params}
    log_loss = LAWS["chinchilla"].evaluate(THETA[None], columns)[0][0]
    error = noise * np.random.default_rng(seed).normal(size=len(params))
    return {**columns, "loss": np.exp(log_loss + error)}, flops > flops.max() / 1.1


def fitted(columns, form="chinchilla"):
    problem = problem_of(columns, form)
    theta_P = best_of_starts(problem)
    return Fitted(form, problem, theta_P, theta_P[None], None, [])


def foretold(columns, left_out):
    """Predictions of the runs left out, from the others, and what these measured."""
    law = fitted({name: column[~left_out] for name, column in columns.items()})
    places = zip(columns["params"][left_out], columns["tokens"][left_out], strict=True)
    return [predict(law, point("chinchilla", at)) for at in places], columns["loss"][left_out]


@pytest.mark.parametrize("noise", [0.002, 0.02])
@pytest.mark.parametrize("draws", [6, pytest.param(60, marks=pytest.mark.slow)])
def test_bands_hold_nine_in_ten_runs_and_not_all(noise, draws):
    inside, width = [], []
    for seed in range(draws):
        told, measured = foretold(*budgets(noise, seed))
        inside += [t["low"] <= loss <= t["high"] for t, loss in zip(told, measured, strict=True)]
        width += [np.log(t["high"] / t["low"]) / 2 / noise for t in told]
    assert 0.8 <= np.mean(inside) < 1
    assert 1.6 < np.median(width) < 4


def test_a_law_that_missed_budgets_before_has_a_wider_band():
    columns, left_out = budgets(0.001)
    work = np.log(columns["params"] * columns["tokens"])
    bent = {**columns, "loss": columns["loss"] * np.exp(0.004 * (work - work.mean()) ** 2)}
    straight, _ = foretold(columns, left_out)
    told, measured = foretold(bent, left_out)
    assert all(t["low"] <= loss <= t["high"] for t, loss in zip(told, measured, strict=True))
    assert told[2]["law_error"] > 5 * straight[2]["law_error"]
    assert told[2]["high"] / told[2]["low"] > (straight[2]["high"] / straight[2]["low"]) ** 3


def test_where_no_budget_can_be_left_out_the_error_is_not_known():
    columns, _ = budgets(0.002, count=2)
    told = predict(fitted(columns), point("chinchilla", (1e10, 2e11)))
    assert told["law_error"] is None
    assert told["reach"] == pytest.approx(1e10 * 2e11 / (columns["params"] * columns["tokens"])[-1])


def test_several_runs_are_predicted_each_with_its_reach():
    columns, _ = budgets(0.002)
    report = fit_columns(columns, predict=[(1e9, 2e10), (1e10, 2e11)])
    near, far = report["predictions"]
    assert report["prediction"] == near
    assert (far["params"], far["tokens"]) == (1e10, 2e11)
    assert far["reach"] == pytest.approx(100 * near["reach"])
    assert far["high"] / far["low"] > near["high"] / near["low"]
    alone = fit_columns(columns, predict=[(1e10, 2e11)])["prediction"]
    assert alone == far


def test_a_band_is_the_same_for_any_number_of_resamples():
    columns, _ = budgets(0.002)
    told = [fit_columns(columns, bootstrap=n, predict=[(1e9, 2e10)]) for n in (0, 25)]
    assert told[0]["prediction"] == told[1]["prediction"]


def test_runs_that_leave_the_law_together_are_not_called_badly_trained():
    """Where a whole edge of a sweep lies off the law, the law is at fault; one run alone is not."""
    axes = np.meshgrid(np.geomspace(1e7, 1e10, 9), np.geomspace(1e9, 1e11, 4))
    columns = dict(zip(("params", "tokens"), (axis.ravel() for axis in axes), strict=True))
    log_loss = LAWS["chinchilla"].evaluate(THETA[None], columns)[0][0]
    log_loss += np.random.default_rng(0).normal(0, 0.003, len(log_loss))
    corner = (columns["tokens"] == 1e9) & (columns["params"] > 3e8)
    columns["loss"] = np.exp(log_loss + 0.05 * corner)
    assert len(suspects(fitted(columns))) <= 1
    worse = 13
    columns["loss"] = columns["loss"] * np.where(np.arange(len(corner)) == worse, 1.05, 1.0)
    assert worse in suspects(fitted(columns))


def test_a_bad_run_is_found_where_the_law_itself_is_off_by_nearly_as_much():
    """One exponent for both misses runs of two quite different ones, evenly: that is not noise."""
    axes = np.meshgrid(np.geomspace(1e7, 3e9, 5), np.geomspace(3e8, 1e11, 5))
    columns = dict(zip(("params", "tokens"), (axis.ravel() for axis in axes), strict=True))
    theta_P = np.array([*np.log([1.7, 0.4 * 1e8**0.6, 0.4 * 5e9**0.2]), 0.6, 0.2])
    log_loss = LAWS["chinchilla"].evaluate(theta_P[None], columns)[0][0]
    loss = np.exp(log_loss + np.random.default_rng(0).normal(0, 0.003, 25))
    assert not suspects(fitted({**columns, "loss": loss}, "tied"))
    found = []
    for worse in range(0, 25, 3):
        made = loss * np.where(np.arange(25) == worse, 1.05, 1.0)
        found.append(worse in suspects(fitted({**columns, "loss": made}, "tied")))
    assert np.mean(found) >= 0.8


@pytest.mark.parametrize("draws", [6, pytest.param(100, marks=pytest.mark.slow)])
def test_planted_bad_runs_are_found(draws):
    generator, hits, bad, alarms, good = np.random.default_rng(1), 0, 0, 0, 0
    for _ in range(draws):
        _, columns, worse = planted(generator, noise=0.004, bad=3)
        found = {row + 1 for row in suspects(fitted(columns))}
        hits, bad = hits + len(found & worse), bad + len(worse)
        alarms, good = alarms + len(found - worse), good + 36 - len(worse)
    assert hits / bad >= (0.9 if draws == 100 else 0.8)
    assert alarms / good <= 0.05


def test_few_clean_runs_are_suspected():
    alarms = [len(suspects(fitted(budgets(0.01, seed)[0]))) for seed in range(10)]
    assert sum(alarms) <= 0.05 * 300
