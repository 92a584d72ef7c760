"""What to doubt of a fit: runs that look badly trained, that decide it, choices that move it."""

from typing import Any

import numpy as np

from tasks.scaling.law import robust
from tasks.scaling.law.fit import Fitted, problem_of
from tasks.scaling.law.robust import Problem
from tasks.scaling.law.runs import Columns

# A run is suspected that lies above its place by so many standard deviations and so much of its
# loss.
SUSPECT_SIGMAS, LEAST_EXCESS = 2.75, 1e-3
NEIGHBOURS, EM_STEPS, FLAT = 4, 30, 100
# Curves collapse over this part of training; before it they are warm-up.
COLLAPSE_FROM, COLLAPSE_POINTS = 0.25, 25
Table = list[dict[str, Any]]


def suspects(fitted: Fitted) -> list[int]:
    """Indices of runs whose loss is above the law and above that of like runs by more than noise.

    All final losses collapse onto the law when training was equally good, so a run that does not
    was trained worse (learning rate, a spike, too few steps). It is alone in that: where runs of
    like size and length lie above the law with it, the law is at fault, as it is at the edges of
    most published sweeps. Only bad runs are looked for: noise does not make a run much better.

    Each is held against what the other runs say of its place, and its neighbours may share less
    than half of what it lies above. The scale is that of the middle ones (median absolute
    deviation), so that the bad ones do not hide behind it.
    """
    problem = fitted.problem
    if problem.runs < problem.law.parameters + 3:
        return []
    above_N = -problem.log_residuals(fitted.theta_P)
    places_NK = _places(problem.columns)
    left_out_N, spread_N = _left_out(problem, fitted.theta_P, above_N, places_NK)
    near_N = np.median(above_N[_neighbours(places_NK)], axis=1)
    sigmas_N = left_out_N / spread_N
    least = SUSPECT_SIGMAS * 1.4826 * np.median(np.abs(sigmas_N - np.median(sigmas_N)))
    alone_N = (above_N > 0) & (near_N < above_N / 2)
    return np.flatnonzero(alone_N & (left_out_N > LEAST_EXCESS) & (sigmas_N > least)).tolist()


def _left_out(
    problem: Problem, theta_P: np.ndarray, above_N: np.ndarray, places_NK: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Error in log loss [N] of what the other runs say of each, and its standard deviation.

    What runs have above the law is a change of its parameters, a smooth departure from it (a
    Gaussian process with Matern's covariance, once differentiable), and noise with the tails of
    Cauchy's distribution, which one bad run does not stretch. Both variances are found by EM
    (Lange, Little and Taylor 1989), the departure's at least the noise's, or the tails would take
    what a few runs share. Errors of runs left out are closed expressions then (Rasmussen and
    Williams 2006, equations 5.10 to 5.12).
    """
    apart_NN = np.sqrt(3 * ((places_NK[:, None] - places_NK) ** 2).sum(axis=-1))
    smooth_NN, law_NN = (1 + apart_NN) * np.exp(-apart_NN), _of_parameters(problem, theta_P)
    count, weight_N = problem.runs, np.ones(problem.runs)
    noise = smooth = (1.4826 * float(np.median(np.abs(above_N)))) ** 2 + 1e-12
    for _ in range(EM_STEPS):
        own_N = noise / weight_N
        others_NN = smooth * smooth_NN + FLAT * count * max(noise, smooth) * law_NN
        inverse_NN = np.linalg.inv(others_NN + np.diag(own_N))
        told_N = inverse_NN @ above_N
        doubt_N = own_N * (1 - own_N * np.diag(inverse_NN))
        square_N = (own_N * told_N) ** 2 + np.maximum(doubt_N, 0)
        weight_N = 2 / (1 + square_N / noise)
        gain = float(told_N @ smooth_NN @ told_N - np.sum(inverse_NN * smooth_NN))
        noise = max(float(np.mean(weight_N * square_N)), 1e-14)
        smooth = max(smooth + smooth**2 * gain / count, noise)
    # A run's own noise is as another's would be, whatever the tails have made of it.
    whole_N = 1 / np.diag(inverse_NN)
    return told_N * whole_N, np.sqrt(np.maximum(whole_N - own_N, 0) + noise)


def _of_parameters(problem: Problem, theta_P: np.ndarray) -> np.ndarray:
    """Covariance [N, N] of what other parameters would change, each by as much."""
    jacobian_NP = problem.law.evaluate(theta_P[None], problem.columns)[1][0]
    jacobian_NP = jacobian_NP / np.maximum(np.linalg.norm(jacobian_NP, axis=0), 1e-300)
    return jacobian_NP @ jacobian_NP.T


def _places(columns: Columns) -> np.ndarray:
    """Logarithms of size and length [N, K], of one spread."""
    names = [name for name in ("params", "tokens", "unique_tokens") if name in columns]
    place_NK = np.log(np.stack([columns[name] for name in names], axis=-1))
    return place_NK / np.maximum(place_NK.std(axis=0), 1e-12)


def _neighbours(places_NK: np.ndarray) -> np.ndarray:
    """Indices [N, NEIGHBOURS] of the runs nearest in size and length."""
    apart_NN = ((places_NK[:, None] - places_NK) ** 2).sum(axis=-1)
    np.fill_diagonal(apart_NN, np.inf)
    return np.argsort(apart_NN, axis=1, kind="stable")[:, :NEIGHBOURS]


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
