"""One law fitted to runs: parameters by two optimisers, replicas, and doubts.

fitted = fit_law(columns, "chinchilla", replicas=200)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cluster.errors import BadInput
from tasks.scaling.law import robust
from tasks.scaling.law.laws import LAWS, PARAMETERS, Law
from tasks.scaling.law.robust import Problem
from tasks.scaling.law.runs import REQUIRED, Columns

DEFAULT_DELTA = 1e-3  # of Huber's loss, in log units
WIDEST_FLOOR = 0.5  # nats: a wider 90 % band of E means that E is not identifiable
BAND = (0.05, 0.95)  # quantiles
Report = dict[str, Any]


@dataclass(frozen=True)
class Fitted:
    """A law fitted to runs: its parameters [P], bootstrap replicas of them [S, P] (one of itself
    where none were drawn), the 90 % band of E where it has one, and what to doubt.
    """

    form: str
    problem: Problem
    theta_P: np.ndarray
    cloud_SP: np.ndarray
    floor: list[float] | None
    doubts: list[str]


def fit_law(
    columns: Columns,
    form: str,
    loss: str | None = None,
    delta: float | None = None,
    replicas: int = 0,
    given: Law | None = None,
) -> Fitted:
    """Fit one law by two optimisers, with bootstrap and profile; see `fit_columns`."""
    problem = problem_of(columns, form, loss, delta, given)
    law = problem.law
    if problem.runs < law.parameters:
        raise BadInput(
            f"{form} has {law.parameters} parameters, {problem.runs} runs cannot determine them; "
            "add runs or take a form with fewer: tied 4, kaplan 4, power 2"
        )
    theta_P, doubts = _compare(
        problem, robust.best_of_starts(problem), robust.second_opinion(problem)
    )
    cloud_SP = robust.bootstrap(problem, theta_P, replicas)
    floor = _floor_band(problem, theta_P)
    doubts += _doubts(problem, theta_P, floor)
    drawn = cloud_SP if len(cloud_SP) else theta_P[None]
    return Fitted(form, problem, theta_P, drawn, floor, doubts)


def describe(fitted: Fitted, errors: bool) -> Report:
    """A fit as the command prints it, with standard errors from its replicas or without."""
    problem, theta_P, form = fitted.problem, fitted.theta_P, fitted.form
    scale = problem.delta if problem.delta <= robust.LAD_DELTA else 1
    return {
        "form": form,
        "objective": float(problem.total(theta_P[None])[0]) / scale,
        "n": problem.runs,
        **_reported(fitted, theta_P),
        "rms_log_residual": float(np.sqrt(np.mean(problem.log_residuals(theta_P) ** 2))),
        "std_err": _spread(fitted) if errors else None,
        "bands": _bands(fitted) if errors else None,
        **({"E_band": fitted.floor} if fitted.floor else {}),
        "identifiable": not fitted.doubts,
        "warnings": list(fitted.doubts),
    }


def _compare(
    problem: Problem, theta_P: np.ndarray, other_P: np.ndarray
) -> tuple[np.ndarray, list[str]]:
    """The better of two optimisers' minima, and a doubt when they differ."""
    first, second = problem.total(np.stack([theta_P, other_P]))
    # L-BFGS sees least absolute deviations smoothed, so it may come 1 % short there.
    allowed = 0.01 if problem.delta <= robust.LAD_DELTA else 1e-3
    # A perfect fit leaves rounding alone, which has no ratio worth comparing.
    exact = max(first, second) < 1e-12 * problem.runs
    if second < first:
        # L-BFGS has seen a smoothed objective: its minimum is followed on the real one.
        theta_P = robust.minimise(problem, other_P[None])[0][0]
    if exact or abs(first - second) <= allowed * min(first, second):
        return theta_P, []
    return theta_P, [f"the optimisers disagree: objectives {first:.6g} and {second:.6g}"]


def _floor_band(problem: Problem, theta_P: np.ndarray) -> list[float] | None:
    """The 90 % band of E by its profile; None for laws without E.

    All other parameters are fitted again at each E, so what they make up for is in the band: a
    floor that any value fits as well has a wide one. (Curvature at the minimum alone is blind to
    the far side of a flat valley; Raue 2009.) It needs no resamples, so the verdict on E is the
    same whatever number of them is asked for.
    """
    law = problem.law
    if law.floor is None:
        return None
    floor, top = law.report(theta_P)["E"], float(problem.columns["loss"].min())
    steps = np.geomspace(2e-3, max(top, floor), 12)
    values = np.concatenate([floor - steps, [floor], floor + steps])
    values = np.unique(np.clip(values, 1e-4 * top, 0.999 * top))
    total_S = robust.profile(problem, theta_P, law.floor, np.log(values))
    least = min(float(problem.total(theta_P[None])[0]), total_S.min())
    allowed = max(least * _growth(problem, theta_P), 1e-14 * problem.runs)
    inside = np.flatnonzero(total_S - least <= allowed)
    if not len(inside):  # E lies beyond every value tried
        return [floor, floor]
    low = _crossing(values, total_S - least, allowed, inside[0], inside[0] - 1)
    high = _crossing(values, total_S - least, allowed, inside[-1], inside[-1] + 1)
    return [float(min(low, floor)), float(max(high, floor))]


def _growth(problem: Problem, theta_P: np.ndarray) -> float:
    """By what share of itself the objective may grow at the end of a 90 % band, with normal noise
    of fitted scale: squares by t^2 / freedom; where most residuals lie beyond delta, absolute ones
    are summed, which grow by pi / 4 of that (Huber 1981, ch. 7).
    """
    from scipy.stats import t

    freedom = max(problem.runs - problem.law.parameters, 1)
    absolute = np.median(np.abs(problem.residuals(theta_P[None])[0][0])) > problem.delta
    return float(t.ppf(BAND[1], freedom) ** 2 / freedom * (np.pi / 4 if absolute else 1))


def _crossing(
    values: np.ndarray, excess: np.ndarray, allowed: float, last: int, beyond: int
) -> float:
    """Where between the last value inside and the one beyond the excess is what is allowed; its
    square root is taken for a straight line there, as of a parabola.
    """
    if not 0 <= beyond < len(values):
        return float(values[last])
    roots = np.sqrt(np.maximum(excess[[last, beyond]], 0))
    return float(np.interp(np.sqrt(allowed), roots, values[[last, beyond]]))


def _doubts(problem: Problem, theta_P: np.ndarray, floor: list[float] | None) -> list[str]:
    law, columns = problem.law, problem.columns
    doubts = []
    if problem.runs < law.parameters + 1:
        doubts.append(
            f"{problem.runs} runs for {law.parameters} parameters leave nothing to judge the fit by"
        )
    for name in ("params", "tokens"):
        distinct = len(set(columns.get(name, range(9))))
        if distinct < 3:
            doubts.append(f"{name} take only {distinct} value(s), the law needs at least 3")
    jacobian_NP = law.evaluate(theta_P[None], columns)[1][0]
    # Columns of length 1: the unit of a parameter must not decide the rank.
    scaled = jacobian_NP / np.maximum(np.linalg.norm(jacobian_NP, axis=0), 1e-300)
    if np.linalg.matrix_rank(scaled, tol=1e-7) < law.parameters:
        doubts.append("some parameters have no influence on these runs")
    if floor and floor[1] - floor[0] > WIDEST_FLOOR:
        doubts.append(
            f"E is not identifiable: its 90 % band is {floor[0]:.2f} to {floor[1]:.2f} nats"
        )
    return doubts


def _frontier(form: str, columns: Columns, law: Mapping[str, float]) -> dict[str, float]:
    """Kaplan's third law: the least loss at compute C = k params tokens is (C_c / C)^alpha_C, of a
    network whose params grow as C^a.

    k is the median cost of the runs where they have a `flops` column, else 6.
    """
    if form != "kaplan":
        return {}
    log_nc, log_dc, log_an, log_ad = (np.log(law[name]) for name in PARAMETERS[form])
    ratio = np.exp(log_an - log_ad)
    k = 6.0
    if "flops" in columns:
        k = float(np.median(columns["flops"] / (columns["params"] * columns["tokens"])))
    # Minimise (N_c / N)^p + k D_c N / C over N, with p = alpha_N / alpha_D.
    alpha_c = float(np.exp(log_an) / (1 + ratio))
    log_optimum = (np.log(ratio) + ratio * log_nc - np.log(k) - log_dc) / (1 + ratio)
    log_cc = (np.log1p(ratio) + ratio * (log_nc - log_optimum)) * (1 + ratio) / ratio
    return {"C_c": float(np.exp(log_cc)), "alpha_C": alpha_c, "a": float(1 / (1 + ratio))}


def _reported(fitted: Fitted, theta_P: np.ndarray) -> dict[str, float]:
    """One parameter vector by the names a user knows, and what follows from it."""
    law = fitted.problem.law.report(theta_P)
    return law | _frontier(fitted.form, fitted.problem.columns, law)


def _spread(fitted: Fitted) -> dict[str, float] | None:
    if len(fitted.cloud_SP) < 2:
        return None
    reports = [_reported(fitted, theta_P) for theta_P in fitted.cloud_SP]
    return {name: float(np.std([r[name] for r in reports], ddof=1)) for name in reports[0]}


def _bands(fitted: Fitted) -> dict[str, list[float]] | None:
    """The middle 90 % of each figure of the bootstrap replicas."""
    if len(fitted.cloud_SP) < 2:
        return None
    reports = [_reported(fitted, theta_P) for theta_P in fitted.cloud_SP]
    return {
        name: [float(v) for v in np.quantile([r[name] for r in reports], BAND)]
        for name in reports[0]
    }


def point(form: str, at: Sequence[float]) -> Columns:
    """The place of a prediction, as columns of one run. Raises BadInput for one of another form."""
    names = [name for name in REQUIRED[form] if name not in ("loss", "y")]
    if form == "repeated" and len(at) == 2:
        at = (*at, at[1])
    if len(at) != len(names) or min(at) <= 0:
        raise BadInput(
            f"--predict for {form} takes {','.join(names)}, all positive, not {list(at)}"
        )
    return {name: np.array([float(value)]) for name, value in zip(names, at, strict=True)}


def problem_of(
    columns: Columns,
    form: str,
    loss: str | None = None,
    delta: float | None = None,
    given: Law | None = None,
) -> Problem:
    """What is minimised, of the form's law, or of this one of it (`laws.keeping`). `tied` was
    published with squares of the loss itself, so it has those unless another loss is asked for.
    """
    if form == "tied" and delta is None:
        loss = loss or "squares"
    law = given or LAWS[form]
    if form == "power" or loss == "squares":
        return Problem(law, columns, robust.SQUARES_DELTA, linear=form != "power")
    width = robust.LAD_DELTA if loss == "lad" else delta or DEFAULT_DELTA
    return Problem(law, columns, width)
