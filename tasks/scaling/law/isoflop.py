"""Compute-optimal sizes by parabolas, one per compute budget (Hoffmann 2022, approach 2).

At a fixed budget C the loss is a parabola in log params; its lowest point gives params and tokens,
and these follow params ~ C^a, tokens ~ C^b. A budget whose lowest point is not enclosed by runs on
both sides is refused: an optimum at the edge is an extrapolation and bends the exponents.
"""

from typing import Any

import numpy as np

from tasks.scaling.law.runs import Columns

# Runs whose FLOPs differ by less than this ratio belong to one budget.
SAME_BUDGET = 1.2
BIAS = (
    "parabolas in log params are biased, noise or not, where alpha and beta differ, and more so on "
    "wide or off-centre grids: set the exponents beside those of --form chinchilla"
)
TOO_FEW = "fewer than 3 sizes, which a parabola needs"


def optima(columns: Columns) -> list[dict[str, Any]]:
    """One row per budget: `flops`, `params`, `tokens`, `loss` at the parabola's lowest point,
    `interior`, the number of `runs`, and `why` not when it is refused (its figures are then the
    best run's).
    """
    flops_N = columns.get("flops", 6 * columns["params"] * columns["tokens"])
    order = np.argsort(flops_N)
    gaps = np.diff(np.log(flops_N[order])) > np.log(SAME_BUDGET)
    groups = np.split(order, np.flatnonzero(gaps) + 1)
    return [_optimum({"flops": flops_N, **columns}, group) for group in groups]


def exponents(rows: list[dict[str, Any]]) -> tuple[float | None, float | None]:
    """`a` and `b` of params ~ C^a, tokens ~ C^b through the interior optima; None below two."""
    kept = [row for row in rows if row["interior"]]
    if len(kept) < 2:
        return None, None
    flops, params, tokens = (np.log([r[k] for r in kept]) for k in ("flops", "params", "tokens"))
    return float(np.polyfit(flops, params, 1)[0]), float(np.polyfit(flops, tokens, 1)[0])


def warnings(rows: list[dict[str, Any]]) -> list[str]:
    """What a reader must know about refused budgets."""
    refused = [
        f"the optimum at budget {r['flops']:.3g} is refused: {r['why']}"
        for r in rows
        if r["why"] and r["why"] != TOO_FEW
    ]
    if few := sum(row["why"] == TOO_FEW for row in rows):
        refused.append(f"no optimum at {few} budgets, which have {TOO_FEW}")
    if sum(row["interior"] for row in rows) < 2:
        refused.append("fewer than two budgets have an interior optimum: no exponents of it")
    return refused


def _optimum(columns: Columns, group: np.ndarray) -> dict[str, Any]:
    group = group[np.argsort(columns["params"][group])]
    runs = {name: column[group] for name, column in columns.items()}
    n_N, best = np.log(runs["params"]), int(runs["loss"].argmin())
    flops = float(np.exp(np.log(runs["flops"]).mean()))
    row: dict[str, Any] = {"flops": flops, "interior": False, "runs": len(group), "why": ""}
    row |= {name: float(runs[name][best]) for name in ("params", "tokens", "loss")}
    if len(set(n_N)) < 3:
        return row | {"why": TOO_FEW}
    if best in (0, len(group) - 1):
        side = "smallest" if best == 0 else "largest"
        return row | {"why": f"its {side} model is the best one"}
    # Centred: far from 0 the columns x^2, x and 1 of a parabola's fit are nearly the same.
    middle = n_N.mean()
    bend, slope, level = np.polyfit(n_N - middle, runs["loss"], 2)
    lowest = -slope / (2 * bend) + middle
    if bend <= 0 or not n_N[0] < lowest < n_N[-1]:
        return row | {"why": "its parabola has no lowest point between its runs"}
    # Exact FLOPs include attention and head: tokens follow from what these runs really cost.
    per_parameter = np.exp(np.log(runs["flops"] / (runs["params"] * runs["tokens"])).mean())
    params = float(np.exp(lowest))
    return row | {
        "params": params,
        "tokens": float(flops / (per_parameter * params)),
        "loss": float(level - slope**2 / (4 * bend)),
        "interior": True,
    }
