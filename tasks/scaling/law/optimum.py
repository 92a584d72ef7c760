"""Compute-optimal sizes by three approaches, under two counts of parameters and two of FLOPs.

The counts alone move the exponent a of params ~ C^a by up to .33 (Pearce and Song 2024; Porian
2024), so they stand in one table. Approaches are those of Hoffmann 2022:

    1  envelope     the best run at each compute, whatever its size
    2  IsoFLOP      lowest points of parabolas; biased where alpha and beta differ or the grid is
                    wide or off centre, even without noise
    3  law          the least loss of the fitted law along lines of equal compute
"""

from typing import Any

import numpy as np

from tasks.scaling.law import isoflop
from tasks.scaling.law.fit import Fitted, fit_law
from tasks.scaling.law.runs import Columns

COUNTS = {"all parameters": "params", "without embeddings": "params_non_embedding"}
FORMULAS = ("exact", "6ND")
Row = dict[str, Any]


def exponents(columns: Columns, form: str) -> list[Row]:
    """Rows of `count`, `flops`, `approach`, `a` and `b` (None where not determined).

    `columns` have params, tokens, loss, and flops for the exact formula, and may have
    params_non_embedding.
    """
    found = []
    for count, name in COUNTS.items():
        if name not in columns:
            continue
        counted = {**columns, "params": columns[name]}
        law = fit_law({k: counted[k] for k in ("params", "tokens", "loss")}, form, "huber")
        for formula in FORMULAS:
            if formula == "exact" and "flops" not in columns:
                continue
            ways = {
                "1 envelope": _envelope(counted, formula),
                "2 IsoFLOP": _parabolas(counted, formula),
                "3 law": _along_law(law, counted, formula),
            }
            for way, (a, b) in ways.items():
                found.append({"count": count, "flops": formula, "approach": way, "a": a, "b": b})
    return found


def _envelope(columns: Columns, formula: str) -> tuple[float | None, float | None]:
    """Through the runs that no cheaper run beats."""
    work_N = _flops(columns, formula)
    order = np.argsort(work_N)
    best = np.minimum.accumulate(columns["loss"][order])
    kept = order[columns["loss"][order] <= best]
    return _slopes(*(c[kept] for c in (work_N, columns["params"], columns["tokens"])))


def _parabolas(columns: Columns, formula: str) -> tuple[float | None, float | None]:
    """Through interior optima of runs of equal exact compute, whatever the formula on the axis."""
    rows = [row for row in isoflop.optima(columns) if row["interior"]]
    params, tokens, flops = (
        np.array([row[name] for row in rows]) for name in ("params", "tokens", "flops")
    )
    return _slopes(flops if formula == "exact" else 6 * params * tokens, params, tokens)


def _along_law(law: Fitted, columns: Columns, formula: str) -> tuple[float | None, float | None]:
    """Through the law's least loss at computes like those of the runs; the exact cost of a size
    between two that were run is interpolated in logarithms.
    """
    n_N = np.log(columns["params"])
    order = np.argsort(n_N)
    cost_N = np.log(_flops(columns, formula) / columns["params"] / columns["tokens"])[order]
    size = np.linspace(n_N.min() - 1, n_N.max() + 1, 4001)
    bend, level = np.polyfit(n_N[order], cost_N, 1)
    low, high = np.quantile(_flops(columns, formula), (0.1, 0.9))
    budgets = np.geomspace(float(low), float(high), 9)
    params, tokens = [], []
    for budget in budgets:
        data = np.log(budget) - size - (level + bend * size)
        at = {"params": np.exp(size), "tokens": np.exp(data)}
        best = int(law.problem.law.evaluate(law.theta_P[None], at)[0][0].argmin())
        params.append(at["params"][best])
        tokens.append(at["tokens"][best])
    return _slopes(budgets, np.array(params), np.array(tokens))


def _flops(columns: Columns, formula: str) -> np.ndarray:
    if formula == "exact":
        return columns["flops"]
    return 6 * columns["params"] * columns["tokens"]


def _slopes(
    flops: np.ndarray, params: np.ndarray, tokens: np.ndarray
) -> tuple[float | None, float | None]:
    if len(set(flops.tolist())) < 2:
        return None, None
    x = np.log(flops)
    return tuple(float(np.polyfit(x, np.log(y), 1)[0]) for y in (params, tokens))  # pyrefly: ignore[bad-return]
