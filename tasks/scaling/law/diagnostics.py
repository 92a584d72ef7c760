"""What to doubt of a fit: runs that look badly trained, that decide it, choices that move it."""

from typing import Any

import numpy as np

from tasks.scaling.law import robust
from tasks.scaling.law.fit import Fitted, problem_of
from tasks.scaling.law.robust import Problem
from tasks.scaling.law.runs import Columns

# A run is suspected that lies above the law by so many standard deviations of the runs about it,
# and above its neighbours by so many of the runs about theirs; at least by so much of its loss.
SUSPECT_SIGMAS, ALONE_SIGMAS, LEAST_EXCESS = 2.5, 2.25, 1e-3
NEIGHBOURS = 4
# Curves collapse over this part of training; before it they are warm-up.
COLLAPSE_FROM, COLLAPSE_POINTS = 0.25, 25
Table = list[dict[str, Any]]


def suspects(fitted: Fitted) -> list[int]:
    """Indices of runs whose loss is above the law and above that of like runs by more than noise.

    All final losses collapse onto the law when training was equally good, so a run that does not
    was trained worse (learning rate, a spike, too few steps). It is alone in that: where runs of
    like size and length lie above the law with it, the law is at fault, as it is at the edges of
    most published sweeps. Only bad runs are looked for: noise does not make a run much better.

    Residuals are studentised, since a fit is drawn to a run far from the others. The scale is that
    of the middle runs (median absolute deviation), so that the bad ones do not hide behind it.
    """
    problem = fitted.problem
    if problem.runs < problem.law.parameters + 3:
        return []
    above_N = -problem.log_residuals(fitted.theta_P) / np.sqrt(_freedoms(problem, fitted.theta_P))
    alone_N = above_N - np.median(above_N[_neighbours(problem.columns)], axis=1)
    sigma, sigma_alone = _sigma(above_N), _sigma(alone_N)
    least = max(SUSPECT_SIGMAS * min(sigma, sigma_alone), LEAST_EXCESS)
    return np.flatnonzero((above_N > least) & (alone_N > ALONE_SIGMAS * sigma_alone)).tolist()


def _freedoms(problem: Problem, theta_P: np.ndarray) -> np.ndarray:
    """1 - leverage [N]: the share of a run's error that the fit does not follow; at least 1/4."""
    jacobian_NP = problem.law.evaluate(theta_P[None], problem.columns)[1][0]
    length_P = np.maximum(np.linalg.norm(jacobian_NP, axis=0), 1e-300)
    return np.maximum(1 - (np.linalg.qr(jacobian_NP / length_P)[0] ** 2).sum(axis=1), 0.25)


def _neighbours(columns: Columns) -> np.ndarray:
    """Indices [N, NEIGHBOURS] of the runs nearest in size and length, logarithms of one spread."""
    names = [name for name in ("params", "tokens", "unique_tokens") if name in columns]
    place_NK = np.log(np.stack([columns[name] for name in names], axis=-1))
    place_NK = place_NK / np.maximum(place_NK.std(axis=0), 1e-12)
    apart_NN = ((place_NK[:, None] - place_NK) ** 2).sum(axis=-1)
    np.fill_diagonal(apart_NN, np.inf)
    return np.argsort(apart_NN, axis=1, kind="stable")[:, :NEIGHBOURS]


def _sigma(values_N: np.ndarray) -> float:
    """Standard deviation of the middle ones: 1.4826 makes it so for normal noise."""
    return 1.4826 * float(np.median(np.abs(values_N - np.median(values_N))))


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
    few = max(1, len(work_N) // 50)
    everything, worst = np.arange(len(work_N)), np.argsort(columns["loss"])[:-few]
    cheap = np.argsort(work_N)[max(1, len(work_N) // 5) :]
    choices: list[tuple[str, str | None, float | None, np.ndarray]] = [
        (f"Huber, delta {delta:g}", "huber", delta, everything) for delta in (1e-4, 1e-3, 1e-2)
    ]
    choices += [
        ("least absolute deviations", "lad", None, everything),
        ("squares of log loss", "huber", robust.SQUARES_DELTA, everything),
        ("squares of loss", "squares", None, everything),
        (f"without the {few} highest losses", "huber", 1e-3, worst),
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


def _figures(problem: Problem, at: Columns | None) -> dict[str, float]:
    theta_P = robust.best_of_starts(problem)
    found = problem.law.report(theta_P)
    if at is not None:
        found["prediction"] = float(np.exp(problem.law.evaluate(theta_P[None], at)[0][0, 0]))
    return found
