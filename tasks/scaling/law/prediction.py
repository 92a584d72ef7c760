"""What a fitted law says of runs that were not made, with a band, and which run to make next."""

from typing import Any

import numpy as np

from tasks.scaling.law import band
from tasks.scaling.law.fit import BAND, Fitted
from tasks.scaling.law.runs import Columns

CURVE_POINTS = 40


def predict(
    fitted: Fitted, at: Columns, noise: float = 0.0, drift: float = 0.0
) -> dict[str, float | None]:
    """What the law says of one run: `loss`, and the 90 % band `low` to `high` in which its loss is
    to be expected; `reach`, its compute over that of the largest run in the fit; and `law_error`,
    the relative error of the law on budgets that were left out, as far away (root mean square;
    None where too few runs would be left).

    `noise` and `drift` are described in the settings, the band in `band`.
    """
    problem, theta_P = fitted.problem, fitted.theta_P
    found = band.around(problem, theta_P, at, noise, drift)
    central, half = problem.law.evaluate(theta_P[None], at)[0][0, 0], found.half_M[0]
    beyond = band.log_compute(at)[0] - band.log_compute(problem.columns).max()
    low, loss, high = (float(np.exp(central + way * half)) for way in (-1, 0, 1))
    law_error, reach = found.error, float(np.exp(beyond))
    return {"loss": loss, "low": low, "high": high, "reach": reach, "law_error": law_error}


def curve(fitted: Fitted, at: Columns) -> list[dict[str, float]]:
    """The law and its 90 % band of parameters along a line of places, for drawing."""
    log_N = fitted.problem.law.evaluate(fitted.theta_P[None], at)[0][0]
    low_N, high_N = np.quantile(fitted.problem.law.evaluate(fitted.cloud_SP, at)[0], BAND, axis=0)
    both = zip(np.exp(log_N), np.exp(low_N), np.exp(high_N), strict=True)
    names = [name for name in ("params", "tokens", "flops") if name in at]
    return [
        {name: float(at[name][i]) for name in names}
        | {"loss": float(v[0]), "low": float(v[1]), "high": float(v[2])}
        for i, v in enumerate(both)
    ]


def frontier(fitted: Fitted, flops_M: np.ndarray, per_parameter: float) -> list[dict[str, float]]:
    """Params, tokens and loss, with its band, where the law is least at each compute: by search
    over sizes, with `per_parameter` FLOPs for each parameter and token.
    """
    found = []
    for flops in flops_M:
        sizes = np.geomspace(1e-3, 1e3, 2001) * np.sqrt(flops / per_parameter / 20)
        at = {"params": sizes, "tokens": flops / per_parameter / sizes}
        best = int(fitted.problem.law.evaluate(fitted.theta_P[None], at)[0][0].argmin())
        place = {name: column[best : best + 1] for name, column in at.items()}
        found += curve(fitted, {**place, "flops": np.array([flops])})
    return found


def next_runs(fitted: Fitted, at: Columns) -> list[dict[str, float]]:
    """The five runs that would shrink the variance of the prediction at a target most per FLOP.

    Each candidate, sizes and lengths about those of the runs and up to a fourth of the target's
    compute, is weighed by linear propagation: with the replicas' covariance S of the predictions
    at target t and candidate c, and a run's own variance v, one more run at c takes S_tc^2 / (S_cc
    + v) off S_tt (Gaussian conditioning). Rows: `params`, `tokens`, `flops`, `shrinks` (share of
    the variance) and `per_flop`, relative to the best.
    """
    problem, law = fitted.problem, fitted.problem.law
    candidates = _candidates(problem.columns, at)
    if not len(candidates["params"]) or len(fitted.cloud_SP) < 10:
        return []
    target_S = law.evaluate(fitted.cloud_SP, at)[0][:, 0]
    log_SN = law.evaluate(fitted.cloud_SP, candidates)[0]
    # Replicas far out are those in which E went to 0: clipped, or they alone would decide.
    target_S, log_SN = (_clipped(values) for values in (target_S[:, None], log_SN))
    target_S = target_S[:, 0] - target_S.mean()
    if np.ptp(target_S) < 1e-12:
        return []
    log_SN = log_SN - log_SN.mean(axis=0)
    noise = float(np.median(np.abs(problem.log_residuals(fitted.theta_P))) * 1.4826) ** 2
    shared_N = target_S @ log_SN / len(target_S)
    shrinks_N = (
        shared_N**2 / ((log_SN**2).mean(axis=0) + noise) / (target_S @ target_S) * len(target_S)
    )
    flops_N = 6 * candidates["params"] * candidates["tokens"]
    worth_N = shrinks_N / flops_N
    return [
        {
            "params": float(candidates["params"][i]),
            "tokens": float(candidates["tokens"][i]),
            "flops": float(flops_N[i]),
            "shrinks": float(shrinks_N[i]),
            "per_flop": float(worth_N[i] / worth_N.max()),
        }
        for i in np.argsort(-worth_N)[:5]
    ]


def _candidates(columns: Columns, at: Columns) -> dict[str, np.ndarray]:
    """A grid from the runs' smallest sizes and lengths to twice the largest, within the compute."""
    sides = [
        np.geomspace(columns[name].min(), 2 * columns[name].max(), 9)
        for name in ("params", "tokens")
    ]
    params, tokens = (side.ravel() for side in np.meshgrid(*sides))
    work, least = params * tokens, (columns["params"] * columns["tokens"]).min()
    affordable = (work <= (at["params"] * at["tokens"])[0] / 4) & (work >= least)
    return {"params": params[affordable], "tokens": tokens[affordable]}


def _clipped(values_SN: np.ndarray) -> np.ndarray:
    low, high = np.quantile(values_SN, (0.02, 0.98), axis=0)
    return np.clip(values_SN, low, high)


def plotted(fitted: Fitted, rows: list[dict[str, Any]]) -> dict[str, list[dict[str, float]]]:
    """The curves of the report, by name: `params` (along each budget), `tokens` (for each size) and
    `flops` (the frontier).
    """
    columns = fitted.problem.columns
    k = float(np.median(columns["flops"] / (columns["params"] * columns["tokens"])))
    span = {name: (column.min() / 1.5, column.max() * 1.5) for name, column in columns.items()}
    sizes = np.geomspace(*span["params"], CURVE_POINTS)
    lengths = np.geomspace(*span["tokens"], CURVE_POINTS)
    along_size, along_data = [], []
    for budget in sorted({float(f"{flops:.2g}") for flops in columns["flops"]})[-6:]:
        inside = sizes[
            (budget / k / sizes > span["tokens"][0]) & (budget / k / sizes < span["tokens"][1])
        ]
        if len(inside) > 1:
            at = {"params": inside, "tokens": budget / k / inside}
            along_size += curve(fitted, {**at, "flops": np.full(len(inside), budget)})
    for params in sorted(set(columns["params"])):
        along_data += curve(fitted, {"params": np.full(CURVE_POINTS, params), "tokens": lengths})
    reach = max(r["flops"] for r in rows)
    along_flops = frontier(fitted, np.geomspace(span["flops"][0], reach * 1.5, CURVE_POINTS), k)
    return {"params": along_size, "tokens": along_data, "flops": along_flops}
