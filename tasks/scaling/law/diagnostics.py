"""What to doubt of a fit: runs that look badly trained, that decide it, choices that move it."""

from typing import Any

import numpy as np

from tasks.scaling.law import robust
from tasks.scaling.law.fit import Fitted, problem_of
from tasks.scaling.law.robust import Problem
from tasks.scaling.law.runs import Columns

# A run is suspected that lies above the law by three standard deviations of the noise, or by half
# of what is looked for, 2 %, where the noise is so large, but never by less than what a few per
# cent of good runs reach.
SUSPECT_SIGMAS, SUSPECT_HALF, SUSPECT_LEAST_SIGMAS = 3.0, 0.01, 1.85
# Curves collapse over this part of training; before it they are warm-up.
COLLAPSE_FROM, COLLAPSE_POINTS = 0.25, 25
Table = list[dict[str, Any]]


def suspects(fitted: Fitted, without_NP: np.ndarray | None = None) -> list[int]:
    """Indices of runs whose loss is above the law fitted without them by more than noise explains.

    All final losses collapse onto the law when training was equally good, so a run that does not
    was trained worse (learning rate, a spike, too few steps). Only bad runs are looked for: noise
    does not make a run much better. The scale is that of the middle runs (median absolute
    deviation), so that the bad ones do not hide behind it.
    """
    problem = fitted.problem
    if problem.runs < problem.law.parameters + 3:
        return []
    if without_NP is None:
        without_NP = robust.leave_one_out(problem, fitted.theta_P)
    excess_N = _left_out_residuals(problem, without_NP)
    inside_N = -problem.log_residuals(fitted.theta_P)
    freedom = problem.runs / (problem.runs - problem.law.parameters)
    # 1.4826 makes the median deviation of normal noise its standard deviation; `freedom` gives back
    # what the fit took from its own residuals.
    sigma = 1.4826 * float(np.median(np.abs(inside_N - np.median(inside_N)))) * np.sqrt(freedom)
    # A run that the fit hardly sees without it is predicted with less certainty.
    doubt_N = np.maximum(1.0, np.abs(excess_N) / np.maximum(np.abs(inside_N), 1e-4)) ** 0.5
    threshold = max(SUSPECT_LEAST_SIGMAS * sigma, min(SUSPECT_SIGMAS * sigma, SUSPECT_HALF), 1e-3)
    threshold_N = threshold * np.minimum(doubt_N, 2.0)
    return np.flatnonzero(excess_N > threshold_N).tolist()


def influence(fitted: Fitted, at: Columns | None, without_NP: np.ndarray) -> Table:
    """How each run moves the fit: the change of E, of the exponent a and of the prediction when it
    is left out. The largest change of what was asked for first.
    """
    law = fitted.problem.law
    whole = law.report(fitted.theta_P)
    rows = []
    for index, theta_P in enumerate(without_NP):
        part = law.report(theta_P)
        row: dict[str, Any] = {"run": index}
        row |= {key: part[key] - whole[key] for key in ("E", "a") if key in whole}
        if at is not None:
            log_S = law.evaluate(np.stack([theta_P, fitted.theta_P]), at)[0][:, 0]
            row["prediction"] = float(np.expm1(log_S[0] - log_S[1]))
        rows.append(row)
    key = "prediction" if at is not None else "a"
    return sorted(rows, key=lambda row: -abs(row.get(key, 0.0)))


def sensitivity(columns: Columns, form: str, at: Columns | None) -> Table:
    """The same law by other losses, and without the worst or the cheapest runs: another objective
    rightly gives another answer, and how far apart they lie is part of the answer.
    """
    work_N = columns["params"] * columns["tokens"]
    five = max(1, len(work_N) // 50)
    everything, worst = np.arange(len(work_N)), np.argsort(columns["loss"])[:-five]
    cheap = np.argsort(work_N)[max(1, len(work_N) // 5) :]
    choices: list[tuple[str, str | None, float | None, np.ndarray]] = [
        (f"Huber, delta {delta:g}", "huber", delta, everything) for delta in (1e-4, 1e-3, 1e-2)
    ]
    choices += [
        ("least absolute deviations", "lad", None, everything),
        ("squares of log loss", "huber", robust.SQUARES_DELTA, everything),
        ("squares of loss", "squares", None, everything),
        (f"without the {five} highest losses", "huber", 1e-3, worst),
        ("without the cheapest fifth", "huber", 1e-3, cheap),
    ]
    rows = []
    for name, loss, delta, kept in choices:
        problem = problem_of({k: c[kept] for k, c in columns.items()}, form, loss, delta)
        if problem.runs >= problem.law.parameters:
            rows.append({"fit": name, "n": problem.runs, **_figures(problem, at)})
    return rows


def collapse(
    curves: dict[str, list[dict[str, float]]], ends: dict[str, tuple[float, float]], floor: float
) -> dict[str, np.ndarray]:
    """Training curves on common axes (Qiu et al. 2025): share of the steps, and loss above `floor`
    over what the law says of the end. Curves of equally well trained runs lie on one another and
    end at 1; a run that ends above was trained worse, which `suspects` puts to the test.

    `curves` have rows with `step` and `loss`, `ends` the measured and the fitted loss of the same
    names; the result has [COLLAPSE_POINTS] values per name, on `share`. A curve is shifted to end
    at the measured, held-out loss. Over its own end instead of the law's, a run at five times the
    learning rate, 7 % worse, was found to lie as near to the others as a good one.
    """
    share = np.linspace(COLLAPSE_FROM, 1.0, COLLAPSE_POINTS)
    found = {"share": share}
    for name, rows in curves.items():
        if len(rows) < 10 or name not in ends:
            continue
        step, loss = (np.array([row[key] for row in rows], dtype=float) for key in ("step", "loss"))
        width = max(1, len(loss) // 20)
        smooth = np.convolve(loss, np.ones(width) / width, mode="valid")
        middle = step[width // 2 : width // 2 + len(smooth)] / step[-1]
        measured, fitted = ends[name]
        over = np.interp(share, middle, smooth) - smooth[-1] + measured - floor
        found[name] = over / max(fitted - floor, 1e-9)
    return found


def _left_out_residuals(problem: Problem, without_NP: np.ndarray) -> np.ndarray:
    """log measured minus log predicted [N], each run by the law fitted without it."""
    log_NN = problem.law.evaluate(without_NP, problem.columns)[0]
    return problem.target_N - np.diagonal(log_NN)


def _figures(problem: Problem, at: Columns | None) -> dict[str, float]:
    theta_P = robust.best_of_starts(problem)
    found = problem.law.report(theta_P)
    if at is not None:
        found["prediction"] = float(np.exp(problem.law.evaluate(theta_P[None], at)[0][0, 0]))
    return found
