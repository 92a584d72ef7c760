import csv
import json
import os
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import BadInput
from tasks.data.row_files import read_columns
from tasks.scaling.law.fit import problem_of
from tasks.scaling.law.fit_file import fit_columns, fit_file
from tasks.scaling.law.laws import LAWS
from tasks.scaling.law.robust import best_of_starts, huber
from tasks.scaling.law.runs import NAMES

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("HEADRACE_SHARED_DATA", ROOT.parent / "shared" / "data")) / "scaling"
shared = pytest.mark.skipif(not SHARED.is_dir(), reason=f"{SHARED} is absent")


def rows(name):
    with (SHARED / name).open(newline="") as file:
        return list(csv.DictReader(file))


def epoch(drop=5):
    """The Chinchilla runs that Epoch AI read off the figure, without the highest losses."""
    table = [(float(r["Model Size"]), float(r["Training FLOP"]), float(r["loss"]))
             for r in rows("epoch/svg_extracted_data.csv")]  # fmt: skip
    params, flops, loss = np.array(sorted(table, key=lambda t: t[2])[: len(table) - drop]).T
    return {"params": params, "tokens": flops / 6 / params, "loss": loss}


def grid(law, theta, noise=0.0, **extra):
    """A 6 x 5 grid of runs that follow a law."""
    params, tokens = np.meshgrid(np.geomspace(1e6, 1e9, 6), np.geomspace(1e8, 3e10, 5))
    columns = {"params": params.ravel(), "tokens": tokens.ravel(), **extra}
    log_loss = LAWS[law].evaluate(np.array([theta]), columns)[0][0]
    error = np.random.default_rng(0).normal(0, noise, len(log_loss)) if noise else 0
    return {**columns, "loss": np.exp(log_loss + error)}


def write(path, columns):
    lines = [",".join(columns)]
    lines += [",".join(map(repr, map(float, row))) for row in zip(*columns.values(), strict=True)]
    path.write_text("\n".join(lines) + "\n")
    return path


@shared
def test_huber_fit_of_the_chinchilla_runs():
    fit = fit_columns(epoch(), "chinchilla", loss="huber", delta=1e-3)
    assert fit["objective"] == pytest.approx(1.018274e-3, abs=1e-8)
    assert fit["E"] == pytest.approx(1.81722, abs=5e-5)
    assert fit["A"] == pytest.approx(477.83, rel=1e-4)
    assert fit["B"] == pytest.approx(2143.4, rel=1e-4)
    assert (fit["alpha"], fit["beta"]) == pytest.approx((0.34731, 0.36717), abs=1e-5)
    assert (fit["identifiable"], fit["n"]) == (True, 240)
    assert fit["std_err"] is None


@shared
def test_least_absolute_deviations_are_another_optimum():
    fit = fit_columns(epoch(), "chinchilla", loss="lad")
    assert fit["E"] == pytest.approx(1.81684, abs=1e-5)
    assert (fit["A"], fit["B"]) == pytest.approx((481.93, 2085.0), rel=1e-5)
    assert (fit["alpha"], fit["beta"]) == pytest.approx((0.34780, 0.36584), abs=1e-5)
    assert fit["objective"] == pytest.approx(1.129376, abs=1e-6)


@shared
def test_five_outliers_move_the_fit():
    fit = fit_columns(epoch(drop=0), "chinchilla")
    assert (fit["E"], fit["beta"]) == pytest.approx((1.891, 0.453), abs=5e-4)
    assert fit["B"] == pytest.approx(12846, rel=1e-3)


@shared
def test_bootstrap_gives_the_published_standard_errors():
    errors = fit_columns(epoch(), "chinchilla", bootstrap=200)["std_err"]
    assert (errors["E"], errors["alpha"], errors["beta"], errors["a"]) == pytest.approx(
        (0.0257, 0.0154, 0.0206, 0.020), rel=0.2
    )
    assert (errors["A"], errors["B"]) == pytest.approx((124.5, 1293), rel=0.3)


@shared
def test_over_trained_and_larger_runs_are_predicted_with_gadres_errors():
    """Gadre 2024, section 4: five small runs, C4 validation, relative errors of .71 and .73 %."""
    named = {r["name"]: r for r in rows("gadre/runs_redpajama.csv")}
    small = ("d=96_l=8_h=4-1.0", "d=512_l=8_h=4-1.0", "d=576_l=24_h=8-1.0", "d=1024_l=24_h=8-1.0")
    small += ("d=96_l=8_h=4-16.0",)
    names = {"params": "params", "tokens": "tokens", "loss": "loss_c4_val"}
    columns = {k: np.array([float(named[f"rpj-{n}"][c]) for n in small]) for k, c in names.items()}
    for name, published in (("rpj-open_lm_1b-32.0", 0.7103), ("rpj-open_lm_7b-1.0", 0.7320)):
        at, measured = [float(named[name][c]) for c in ("params", "tokens")], named[name]
        predicted = fit_columns(columns, "tied", predict=[at])["prediction"]["loss"]
        error = abs(predicted / float(measured["loss_c4_val"]) - 1)
        assert round(100 * error, 4) == pytest.approx(published, abs=1e-4)


def test_repeated_law_gives_the_published_worked_value_to_ten_digits():
    theta = [0.6254804, 6.255414, 7.3049974, 0.3526596, np.log(5.309743), np.log(15.387756)]
    at = {"params": 6.34e9, "tokens": 242e9, "unique_tokens": 25e9}
    columns = {name: np.array([value]) for name, value in at.items()}
    loss = np.exp(LAWS["repeated"].evaluate(np.array([theta]), columns)[0][0, 0])
    assert loss == pytest.approx(2.2256440889984477, rel=1e-13)


@shared
def test_weighted_power_law_gives_porians_exponents():
    names = ("file", "dataset", "hparams", "warmup", "decay", "param_count", "val")
    pairs = defaultdict(list)
    for row in rows("porian/optimal_pairs.csv"):
        if row["n_star_std"]:
            pairs[tuple(row[k] for k in names)].append(
                (float(row["flops"]), float(row["n"]), float(row["n_star_std"]) ** -2)
            )
    published = rows("porian/published_fits.csv")
    assert len(published) == 15
    for row in published:
        x, y, weight = np.array(pairs[tuple(row[k] for k in names)]).T
        fit = fit_columns({"x": x, "y": y, "weight": weight}, "power")
        assert fit["a"] == pytest.approx(float(row["n_exponent"]), abs=5e-4)


@shared
def test_optima_of_one_sweep_give_three_exponents_by_what_is_counted():
    found = {}
    for counting in ("kaplan_with_lmhead", "chinchilla_all", "transformer_only"):
        kept = [r for r in rows("nanochat/isoflop_optima_jan26.csv") if r["counting"] == counting]
        y = np.array([float(r["eff_params"]) for r in kept])
        x = np.geomspace(1e18, 1e19, 4)  # the file's labels 2e18 and 5e18 are rounded
        found[counting] = fit_columns({"x": x, "y": y}, "power")["a"]
    assert list(found.values()) == pytest.approx([0.536, 0.374, 0.696], abs=1e-3)


def test_the_objective_is_a_sum_of_huber_losses_not_a_mean():
    theta = [np.log(1.7), np.log(400), np.log(2000), 0.34, 0.36]
    once = grid("chinchilla", theta, noise=0.01)
    first = fit_columns(once)
    predicted = first["E"] + first["A"] / once["params"] ** first["alpha"]
    residual = np.log(predicted + first["B"] / once["tokens"] ** first["beta"]) - np.log(
        once["loss"]
    )
    assert first["objective"] == pytest.approx(huber(residual, 1e-3).sum(), rel=1e-9)


def test_huber_is_quadratic_inside_and_linear_outside():
    assert huber(np.array([0.5, -1.0, 3.0]), 1.0).tolist() == [0.125, 0.5, 2.5]


@settings(max_examples=8, deadline=None)
@given(
    E=st.floats(0.5, 2.5),
    A=st.floats(50, 1000),
    B=st.floats(50, 1000),
    alpha=st.floats(0.25, 0.6),
    beta=st.floats(0.25, 0.6),
)
def test_chinchilla_is_recovered_from_clean_runs(E, A, B, alpha, beta):
    problem = problem_of(grid("chinchilla", [*np.log([E, A, B]), alpha, beta]), "chinchilla")
    fit = problem.law.report(best_of_starts(problem))
    assert [fit[k] for k in ("E", "A", "B", "alpha", "beta")] == pytest.approx(
        [E, A, B, alpha, beta], rel=1e-3
    )
    assert fit["a"] == pytest.approx(beta / (alpha + beta), rel=1e-3)


def test_tied_is_recovered():
    fit = fit_columns(grid("tied", [*np.log([1.9, 520.8, 1487.7]), 0.3527]), "tied")
    assert (fit["E"], fit["alpha"], fit["beta"]) == pytest.approx((1.9, 0.3527, 0.3527), rel=1e-5)


def test_kaplan_is_recovered_with_its_compute_law():
    n_c, d_c, alpha_n, alpha_d = 8.8e13, 5.4e13, 0.076, 0.095
    columns = grid("kaplan", np.log([n_c, d_c, alpha_n, alpha_d]))
    fit = fit_columns(columns, "kaplan")
    assert [fit[k] for k in ("N_c", "D_c", "alpha_N", "alpha_D")] == pytest.approx(
        [n_c, d_c, alpha_n, alpha_d], rel=1e-4
    )
    flops, sizes = 1e20, np.geomspace(1e6, 1e12, 200_001)
    data_term = d_c / (flops / (6 * sizes))
    frontier = ((n_c / sizes) ** (alpha_n / alpha_d) + data_term).min() ** alpha_d
    assert (fit["C_c"] / flops) ** fit["alpha_C"] == pytest.approx(frontier, rel=1e-4)


def test_repeated_data_law_is_recovered_and_has_the_published_worked_value():
    theta = [0.6254804, 6.255414, 7.3049974, 0.3526596, np.log(5.309743), np.log(15.387756)]
    unique = np.tile([3e8, 3e9, 1e10], 10)
    columns = grid("repeated", theta, unique_tokens=unique)
    columns["unique_tokens"] = np.minimum(unique, columns["tokens"])
    columns["loss"] = np.exp(LAWS["repeated"].evaluate(np.array([theta]), columns)[0][0])
    fit = fit_columns(columns, "repeated", predict=[(6.34e9, 242e9, 25e9)])
    assert (fit["R_N"], fit["R_D"]) == pytest.approx((5.309743, 15.387756), rel=1e-3)
    assert (np.log(fit["E"]), fit["alpha"]) == pytest.approx((0.6254804, 0.3526596), rel=1e-3)
    assert fit["prediction"]["loss"] == pytest.approx(2.2256440889984477, rel=1e-4)


@pytest.mark.parametrize("form", sorted(LAWS))
def test_jacobians_equal_differences(form):
    law = LAWS[form]
    columns = grid("chinchilla", [*np.log([1.7, 400, 2000]), 0.34, 0.36])
    columns |= {"unique_tokens": columns["tokens"] / 3}
    columns |= {"x": columns["params"], "y": columns["loss"]}
    theta = law.starts(columns)[:5]
    jacobian = law.evaluate(theta, columns)[1]
    for p in range(law.parameters):
        step = 1e-6 * np.eye(law.parameters)[p]
        difference = law.evaluate(theta + step, columns)[0] - law.evaluate(theta - step, columns)[0]
        assert difference / 2e-6 == pytest.approx(jacobian[..., p], abs=1e-6)


def isoflop_runs(budgets, sizes):
    params, flops = (m.ravel() for m in np.meshgrid(sizes, budgets))
    best = 0.1 * flops**0.5
    loss = 50 * flops**-0.06 + 0.08 * np.log(params / best) ** 2
    return {"params": params, "tokens": flops / (6 * params), "loss": loss, "flops": flops}


def test_isoflop_finds_parabola_minima_and_their_exponents():
    fit = fit_columns(isoflop_runs([1e18, 1e19, 1e20], np.geomspace(1e7, 1e10, 8)), "isoflop")
    assert [row["interior"] for row in fit["optima"]] == [True] * 3
    assert [row["params"] for row in fit["optima"]] == pytest.approx([1e8, 3.1623e8, 1e9], rel=1e-4)
    assert fit["optima"][0]["tokens"] == pytest.approx(1e18 / 6e8, rel=1e-4)
    assert (fit["a"], fit["b"]) == pytest.approx((0.5, 0.5))
    assert fit["identifiable"]


def test_isoflop_refuses_optima_at_the_edge():
    fit = fit_columns(isoflop_runs([1e16, 1e19, 1e20], np.geomspace(1e8, 1e10, 7)), "isoflop")
    assert [row["interior"] for row in fit["optima"]] == [False, True, True]
    assert fit["warnings"] == [
        "the optimum at budget 1e+16 is refused: its smallest model is the best one"
    ]
    assert fit["a"] == pytest.approx(0.5)
    assert not fit["identifiable"]


def test_isoflop_groups_budgets_that_differ_a_little():
    columns = isoflop_runs([1e18, 1e19], np.geomspace(1e7, 1e10, 8))
    columns["flops"] = columns["flops"] * np.tile([0.98, 1.02], 8)
    assert [row["runs"] for row in fit_columns(columns, "isoflop")["optima"]] == [8, 8]


def test_few_runs_are_fitted_and_called_unidentifiable():
    columns = grid("chinchilla", [*np.log([1.7, 400, 2000]), 0.34, 0.36], noise=0.005)
    fit = fit_columns({name: column[:5] for name, column in columns.items()}, "chinchilla")
    assert not fit["identifiable"]
    assert "5 runs for 5 parameters leave nothing to judge the fit by" in fit["warnings"]
    assert "tokens take only 1 value(s), the law needs at least 3" in fit["warnings"]


def test_a_narrow_noisy_grid_leaves_the_floor_open():
    params, tokens = np.meshgrid([1e7, 2e7, 4e7], [1e9, 2e9, 4e9])
    columns = {"params": params.ravel(), "tokens": tokens.ravel()}
    theta = np.array([[*np.log([1.7, 400, 2000]), 0.34, 0.36]])
    noise = np.random.default_rng(1).normal(0, 0.01, 9)
    columns["loss"] = np.exp(LAWS["chinchilla"].evaluate(theta, columns)[0][0] + noise)
    fit = fit_columns(columns)
    assert not fit["identifiable"]
    assert fit["E_band"][1] - fit["E_band"][0] > 0.5
    assert any("E is not identifiable" in w for w in fit["warnings"])


def test_prediction_band_covers_unseen_runs():
    theta = [*np.log([1.7, 400, 2000]), 0.34, 0.36]
    truth = np.exp(
        LAWS["chinchilla"].evaluate(
            np.array([theta]), {"params": np.array([7e9]), "tokens": np.array([1.4e11])}
        )[0][0, 0]
    )
    fit = fit_columns(grid("chinchilla", theta, noise=0.005), predict=[(7e9, 1.4e11)])
    band = fit["prediction"]
    assert band["low"] < truth < band["high"]
    assert band["low"] < band["loss"] < band["high"] < 1.1 * band["low"]


def test_results_are_plain_json(tmp_path):
    columns = grid("chinchilla", [*np.log([1.7, 400, 2000]), 0.34, 0.36], noise=0.01)
    for form in ("chinchilla", "tied", "kaplan", "isoflop"):
        path = write(tmp_path / f"{form}.csv", columns)
        fit = fit_file(path, form, bootstrap=20)
        assert json.loads(json.dumps(fit, allow_nan=False)) == fit
        assert {"form", "objective", "n", "std_err", "identifiable", "warnings"} <= set(fit)


def test_same_seed_same_fit():
    columns = grid("chinchilla", [*np.log([1.7, 400, 2000]), 0.34, 0.36], noise=0.01)
    first, second = (fit_columns(columns, bootstrap=20, predict=[(1e10, 1e11)]) for _ in range(2))
    assert first == second


GOOD = "params,tokens,loss\n" + "".join(f"{n}e6,{d}e8,3\n" for n in (1, 2) for d in (1, 2, 3))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("param,tokens,loss\n1,2,3\n", "no column 'params'.*did you mean 'param'"),
        ("params,tokens,loss\n1,2,x\n", "row 1, column 'loss': 'x' is not a number"),
        ("params,tokens,loss\n1,2,3\n1,-2,3\n", "row 2, column 'tokens': -2 is not positive"),
        ("params,tokens,loss\n1,2,nan\n", "row 1, column 'loss': nan is not positive and finite"),
        ("params,tokens,loss\n1,2,\n", "row 1, column 'loss': '' is not a number; leave out"),
        ("params,tokens,loss\n1,2\n", "line 2 has 2 cells below 3 columns"),
        ("seed,seed,params,tokens,loss,x\n1,1,1,2,3,4\n", "a column is named twice: seed, seed"),
        ("params,tokens,loss\n", "has no rows; expected columns"),
        ("", "has no rows; expected columns"),
        ("params,tokens,loss\n1,2,3\n", "chinchilla has 5 parameters, 1 runs"),
    ],
)
def test_unusable_files_are_refused_with_the_reason(tmp_path, text, message):
    path = tmp_path / "runs.csv"
    path.write_text(text)
    with pytest.raises(BadInput, match=message):
        fit_file(path)


def test_runs_of_other_names_stand_in_a_table_as_spreadsheets_leave_them_or_in_json(tmp_path):
    rows = [line.split(",") for line in GOOD.splitlines()[1:]]
    table, lines = tmp_path / "runs.csv", tmp_path / "runs.jsonl"
    table.write_text(
        '"Size (N)";"D, tokens";loss;;\n' + "".join(f"{n};{d};{y};;\n" for n, d, y in rows)
    )
    keys = ("Size (N)", "D, tokens", "loss")
    runs = (dict(zip(keys, map(float, row), strict=True)) for row in rows)
    lines.write_text("".join(json.dumps(run) + "\n" for run in runs))
    (tmp_path / "good.csv").write_text(GOOD)
    wanted = fit_file(tmp_path / "good.csv", "tied")
    names = read_columns('params=Size (N),"tokens=D, tokens"', NAMES)
    for path in (table, lines):
        assert fit_file(path, "tied", names=names) == wanted


def test_unusable_flags_are_refused_with_the_reason(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text(GOOD)
    with pytest.raises(BadInput, match="unknown form 'chinchila': did you mean 'chinchilla'"):
        fit_file(path, "chinchila")
    with pytest.raises(BadInput, match="unknown loss 'l2'"):
        fit_file(path, loss="l2")
    with pytest.raises(BadInput, match="delta must be positive, got -1"):
        fit_file(path, delta=-1)
    with pytest.raises(BadInput, match="takes params,tokens, all positive"):
        fit_file(path, predict=[(1e6,)])
    with pytest.raises(BadInput, match="isoflop has none"):
        fit_file(path, "isoflop", predict=[(1e6, 1e9)])
    with pytest.raises(BadInput, match=r"absent\.csv cannot be read as UTF-8 text"):
        fit_file(tmp_path / "absent.csv")


def test_a_loss_that_does_not_apply_is_said_so(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("x,y\n1,2\n2,4\n4,8\n")
    fit = fit_file(path, "power", loss="lad")
    assert (fit["c"], fit["a"]) == pytest.approx((2, 1))
    assert fit["warnings"] == [
        "power is fitted by least squares; loss and delta do not apply to it"
    ]


def planted(generator, noise, bad=0):
    """A law drawn at random, 36 noisy runs of it, and the rows of those made 2 % worse."""
    params, tokens = np.meshgrid(np.geomspace(1e7, 3e9, 6), np.geomspace(3e8, 1e11, 6))
    columns = {"params": params.ravel(), "tokens": tokens.ravel()}
    alpha, beta = generator.uniform(0.28, 0.45, 2)
    sizes = generator.uniform(0.15, 0.5, 2) * (1e8**alpha, 5e9**beta)
    theta = np.array([*np.log([generator.uniform(1.2, 2.2), *sizes]), alpha, beta])
    log_loss = LAWS["chinchilla"].evaluate(theta[None], columns)[0][0]
    log_loss += generator.normal(0, noise, 36)
    worse = generator.choice(36, bad, replace=False)
    log_loss[worse] += np.log(1.02)
    law = LAWS["chinchilla"].report(theta)
    return law, {**columns, "loss": np.exp(log_loss)}, {int(i) + 1 for i in worse}


@pytest.mark.parametrize("draws", [5, pytest.param(100, marks=pytest.mark.slow)])
def test_planted_laws_lie_within_their_bands(draws):
    generator, inside = np.random.default_rng(7), defaultdict(int)
    for _ in range(draws):
        law, columns, _ = planted(generator, noise=0.005)
        fit = fit_columns(columns, bootstrap=60)
        inside["E band"] += fit["E_band"][0] <= law["E"] <= fit["E_band"][1]
        for name, (low, high) in fit["bands"].items():
            inside[name] += low <= law[name] <= high
    assert min(inside.values()) >= (0.85 if draws == 100 else 0.6) * draws, dict(inside)


def test_kaplans_laws_of_one_variable_are_fitted_apart():
    params, tokens = np.meshgrid(np.geomspace(1e6, 1e9, 4), [1e15, 1e16])
    columns = {"params": params.ravel(), "tokens": tokens.ravel()}
    columns["loss"] = (8.8e13 / columns["params"]) ** 0.076
    found = fit_columns(columns, "kaplan")["separate"]
    assert (found["N_c"], found["alpha_N"]) == pytest.approx((8.8e13, 0.076), rel=1e-6)
    assert {"D_c", "alpha_D", "C_c", "alpha_C"} <= set(found)


def test_runs_of_an_mlflow_experiment_are_fitted(tmp_path, monkeypatch):
    from mlflow.entities import Metric
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    experiment = client.create_experiment("mine")
    whole = grid("chinchilla", [*np.log([1.7, 400, 2000]), 0.34, 0.36])
    columns = {name: column[::2] for name, column in whole.items()}
    for row in zip(*columns.values(), strict=True):
        run = client.create_run(experiment)
        named = zip(columns, row, strict=True)
        metrics = [Metric(name, float(value), 0, 0) for name, value in named]
        client.log_batch(run.info.run_id, metrics)
    client.create_run(experiment)  # without metrics: no run of a sweep
    fit = fit_file("mlflow:mine")
    assert (fit["n"], fit["E"]) == (15, pytest.approx(1.7, rel=1e-3))
    with pytest.raises(BadInput, match="no MLflow experiment 'min': did you mean 'mine'"):
        fit_file("mlflow:min")
