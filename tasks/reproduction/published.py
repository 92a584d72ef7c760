"""What the published runs of a law say when they are fitted, or the law as its paper states it.

figures(rows, {"huber": FitOf(columns={"params": "Model Size", ...}, leave_out=5)})
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cluster.errors import BadInput
from cluster.settings import nearest
from tasks.reproduction.settings import FitOf, Rows
from tasks.scaling.law.fit import Fitted, problem_of
from tasks.scaling.law.fit_file import fit_columns
from tasks.scaling.law.laws import LAWS, PARAMETERS, Law, keeping, placed
from tasks.scaling.law.runs import REQUIRED, Columns

Row = Mapping[str, str]
Figures = dict[str, Any]
EPOCHS = (2, 4, 16, 40)
EMBEDDING_RATIO = 47491.0
"""omega of N_all = N + omega N^(1/3), N without embeddings (Pearce and Song 2024, section 4.1)."""
KAPLANS_COMPUTE = (9e12, 5e20)
"""FLOPs without embeddings of the frontier of models from 768 to 1.5 billion parameters without
embeddings, as those of Kaplan et al. 2020 (Pearce and Song 2024, section 4.2)."""


def figures(rows: Sequence[Row], fits: Mapping[str, FitOf]) -> dict[str, Figures]:
    """By name of the fit its report, as of `headrace fit`, with more (`_more`); nothing for fits of
    runs where there are none.

    Raises BadInput for a column or rows that the file does not have.
    """
    return {
        name: refitted(rows, fit, name) if fit.columns else stated(fit)
        for name, fit in fits.items()
        if rows or not fit.columns
    }


def refitted(rows: Sequence[Row], fit: FitOf, name: str) -> Figures:
    """One fit of the runs, with what it foretells of rows that it is not fitted to."""
    kept = [row for row in rows if not any(row[c] in t for c, t in fit.without.items())]
    columns = columns_of(kept, fit, fit.where, name)
    order_N = np.argsort(columns["loss" if "loss" in columns else "y"], kind="stable")
    low_N = np.sort(order_N[: len(order_N) - fit.leave_out])
    columns = {key: values[low_N] for key, values in columns.items()}
    asked = {which: columns_of(rows, fit, where, which) for which, where in fit.foretells.items()}
    places = [(at["params"][0], at["tokens"][0]) for at in asked.values()]
    found = fit_columns(columns, fit.form, fit.loss, None, fit.bootstrap, places, given(fit))
    told = zip(asked.items(), found.pop("predictions", ()), strict=True)
    found["foretold"] = {
        which: {"error": 100 * abs(said["loss"] / at["loss"][0] - 1), "loss": said["loss"]}
        | {"bands": {"error": _error_band(said, float(at["loss"][0]))}}
        for (which, at), said in told
    }
    found["points"] = {key: values.tolist() for key, values in columns.items()}
    return found | more(fit.form, found)


def given(fit: FitOf) -> Law | None:
    """The law with the parameters that are stated; None where all are fitted."""
    if not fit.values and not fit.near:
        return None
    return keeping(LAWS[fit.form], placed(fit.form, fit.values), placed(fit.form, fit.near))


def stated(fit: FitOf) -> Figures:
    """A law by the parameters that the paper gives; `loss` at the place asked for."""
    theta_P = theta_of(fit.form, fit.values)
    found = dict(fit.values)
    if fit.at:
        names = [name for name in REQUIRED[fit.form] if name != "loss"]
        at = {name: np.array([value]) for name, value in zip(names, fit.at, strict=True)}
        found["loss"] = math.exp(LAWS[fit.form].evaluate(theta_P[None], at)[0][0, 0])
    return found | more(fit.form, found)


def theta_of(form: str, values: Mapping[str, float]) -> np.ndarray:
    """The parameters [P] of a form, in the order of its law, from their names. Raises BadInput for
    one that is not given.
    """
    for name in PARAMETERS[form]:
        if name not in values:
            raise BadInput(f"a stated law of form {form} needs its '{name}'")
    known = placed(form, {name: values[name] for name in PARAMETERS[form]})
    return np.array([known[place] for place in range(len(known))])


def more(form: str, found: Mapping[str, Any]) -> Figures:
    """What follows from a law: `worth` of repeated tokens, by epochs; `without_embeddings`, the
    exponent of optimal size that counting no embeddings makes of it; Kaplan's frontier.
    """
    bands = found.get("bands") or {}
    if form == "repeated":
        ends = bands.get("R_D", (found["R_D"], found["R_D"]))
        told = {str(n): worth(found["R_D"], n) for n in EPOCHS}
        return {"worth": told | {"bands": {str(n): [worth(r, n) for r in ends] for n in EPOCHS}}}
    if form == "chinchilla":
        return {"without_embeddings": without_embeddings(found)}
    if form == "kaplan":
        both = found["alpha_N"] + found["alpha_D"]
        return {"a": found["alpha_D"] / both, "alpha_C": found["alpha_N"] * found["alpha_D"] / both}
    return {}


def worth(saturation: float, epochs: float) -> float:
    """What a token is worth on average when text is seen so many times, in new tokens (Muennighoff
    2023, eq. 5): 1 for text that is seen once.
    """
    again = epochs - 1
    return (1 + saturation * -math.expm1(-again / saturation)) / epochs


def without_embeddings(law: Mapping[str, float]) -> float:
    """The exponent a of N ~ C^a that a law of all parameters has where neither N nor C = 6 N D
    counts embeddings, over the compute of Kaplan et al. (Pearce and Song 2024, section 4).

    At an optimum d log(A / N_all^alpha) and d log(B / D^beta) balance, which gives the tokens.
    """
    size = np.geomspace(1e2, 1e11, 400)
    whole = size + EMBEDDING_RATIO * size ** (1 / 3)
    slope = (size + EMBEDDING_RATIO / 3 * size ** (1 / 3)) / whole
    pull = law["A"] * law["alpha"] * slope * whole ** -law["alpha"]
    tokens = (law["B"] * law["beta"] / pull) ** (1 / law["beta"])
    budgets = np.log(np.geomspace(*KAPLANS_COMPUTE, 100))
    best = np.interp(budgets, np.log(6 * size * tokens), np.log(size))
    return float(np.polyfit(budgets, best, 1)[0])


def columns_of(rows: Sequence[Row], fit: FitOf, where: Rows, name: str) -> Columns:
    """The rows that a fit is of, as columns; those without a figure in one of them are left out.

    Without tokens these follow from FLOPs, C = 6 N D. `error` becomes a weight, 1 / error^2.
    """
    for column in (*fit.columns.values(), *where):
        if column not in rows[0]:
            raise BadInput(
                f"the published runs have no column '{column}': {nearest(column, rows[0])}"
            )
    meant = [row for row in rows if all(row[c] in texts for c, texts in where.items())]
    whole = [row for row in meant if all(row[c] for c in fit.columns.values())]
    if not whole:
        raise BadInput(f"no row of the published runs is one of '{name}': {dict(where)}")
    found = {k: np.array([float(row[c]) for row in whole]) for k, c in fit.columns.items()}
    if "tokens" not in found and "flops" in found:
        found["tokens"] = found["flops"] / 6 / found["params"]
    if "error" in found:
        found["weight"] = found.pop("error") ** -2
    wanted = (*REQUIRED[fit.form], *(("weight",) if "weight" in found else ()))
    return {key: found[key] for key in wanted}


def as_fitted(form: str, found: Mapping[str, Any]) -> Fitted:
    """A law by its figures, to be drawn."""
    theta_P = theta_of(form, found)
    return Fitted(form, problem_of({}, form), theta_P, theta_P[None], None, [])


def _error_band(said: Mapping[str, Any], measured: float) -> list[float]:
    """The relative errors, in per cent, that the band of a prediction allows."""
    return [0.0, 100 * max(abs(said[end] / measured - 1) for end in ("low", "high"))]
