"""Fit scaling laws to runs from anywhere, with the doubt stated: `headrace fit RUNS.csv`.

The forms are in `laws`, the objective and its two minimisers in `robust`. A fit says whether its
parameters are identifiable; where they are not, a law with few parameters is the honest choice.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cluster.errors import BadInput
from cluster.settings import nearest
from tasks.scaling.law import isoflop, prediction
from tasks.scaling.law.diagnostics import suspects
from tasks.scaling.law.fit import DEFAULT_DELTA, Fitted, Report, describe, fit_law, point
from tasks.scaling.law.runs import REQUIRED, Columns, from_mlflow, read

FORMS = tuple(REQUIRED)
LOSSES = ("huber", "lad", "squares")
# Replicas behind a prediction's band where no bootstrap was asked for.
PREDICTION_REPLICAS = 200


def fit_file(
    path: Path | str,
    form: str = "chinchilla",
    loss: str | None = None,
    delta: float | None = None,
    bootstrap: int = 0,
    predict: Sequence[float] | None = None,
) -> Report:
    """Fit the runs of a CSV file, or of an MLflow experiment given as `mlflow:NAME`; see
    `fit_columns`. Raises BadInput for unusable runs.
    """
    _check_form(form)
    named = str(path).removeprefix("mlflow:")
    columns = read(Path(path), form) if named == str(path) else from_mlflow(named, form)
    return fit_columns(columns, form, loss, delta, bootstrap, predict)


def fit_columns(
    columns: Columns,
    form: str = "chinchilla",
    loss: str | None = None,
    delta: float | None = None,
    bootstrap: int = 0,
    predict: Sequence[float] | None = None,
) -> Report:
    """Fit runs given as columns [N]; the report has the keys of the command contract.

    `loss` is huber (default) with `delta` (default 1e-3) or lad, which has none, of log residuals,
    or squares of the loss itself, which is the default of `tied` (Gadre 2024, appendix); `power`
    and `isoflop` are fitted by least squares of logarithms. `bootstrap` resamples of the runs give
    standard errors. `predict` is (params, tokens), for repeated also unique tokens, for power (x,);
    see `prediction.predict` for its 90 % band. Raises BadInput for an unknown form or loss, fewer
    runs than parameters, and a prediction the form cannot make.
    """
    _check_form(form)
    _check_loss(loss, delta)
    if form == "isoflop":
        report = _fit_isoflop(columns, bootstrap, predict)
    else:
        at = point(form, predict)
        drawn = bootstrap or (PREDICTION_REPLICAS if at else 0)
        fitted = fit_law(columns, form, loss, delta, drawn)
        report = describe(fitted, errors=bootstrap > 0)
        if form == "kaplan":
            report["separate"] = separate(columns)
        if form != "power":
            report |= _suspects(fitted)
        if at:
            report["prediction"] = prediction.predict(fitted, at)
    unusual = loss not in (None, "huber") or delta not in (None, DEFAULT_DELTA)
    if form in ("isoflop", "power") and unusual:
        ignored = f"{form} is fitted by least squares; loss and delta do not apply to it"
        report["warnings"] = [ignored, *report["warnings"]]
    return report


def _suspects(fitted: Fitted) -> Report:
    """Rows, counted from 1, of runs that look badly trained, and a warning about them."""
    rows = [index + 1 for index in suspects(fitted)]
    said = f"rows {', '.join(map(str, rows))} lie above the law by more than noise: badly trained?"
    warnings = [*fitted.doubts, said] if rows else list(fitted.doubts)
    return {"suspects": rows, "warnings": warnings}


def separate(columns: Columns) -> dict[str, float]:
    """Kaplan's laws of one variable each, L(N) = (N_c / N)^alpha_N and so on (2020, eq. 1.1-1.3),
    through the best run of each size, of each length, and those that no cheaper run beats.
    """
    work_N = columns.get("flops", 6 * columns["params"] * columns["tokens"])
    found: dict[str, float] = {}
    for letter, x_N in (("N", columns["params"]), ("D", columns["tokens"]), ("C", work_N)):
        order = np.lexsort((columns["loss"], x_N))
        if letter == "C":
            best = columns["loss"][order] <= np.minimum.accumulate(columns["loss"][order])
        else:
            best = np.diff(x_N[order], prepend=0) > 0  # the first of each value has its least loss
        x_M, loss_M = np.log(x_N[order][best]), np.log(columns["loss"][order][best])
        if len(x_M) > 1:
            slope, level = np.polyfit(x_M, loss_M, 1)
            found |= {
                f"{letter}_c": float(np.exp(-level / slope)),
                f"alpha_{letter}": float(-slope),
            }
    return found


def _fit_isoflop(columns: Columns, replicas: int, predict: Sequence[float] | None) -> Report:
    if predict is not None:
        raise BadInput("--predict needs a law of the loss; isoflop has none, take chinchilla")
    rows = isoflop.optima(columns)
    a, b = isoflop.exponents(rows)
    warnings = isoflop.warnings(rows)
    interior = [row for row in rows if row["interior"]]
    x_N, y_N = (np.log([row[k] for row in interior]) for k in ("flops", "params"))
    line = np.polyfit(x_N, y_N, 1) if len(interior) > 1 else np.zeros(2)
    return {
        "form": "isoflop",
        "objective": float(((np.polyval(line, x_N) - y_N) ** 2).sum() / 2) if a else 0.0,
        "n": len(columns["loss"]),
        "optima": rows,
        "a": a,
        "b": b,
        "std_err": _isoflop_spread(columns, replicas) if replicas else None,
        "identifiable": len(interior) >= 3,
        "note": isoflop.BIAS,
        "warnings": warnings,
    }


def _isoflop_spread(columns: Columns, replicas: int) -> dict[str, float] | None:
    generator, found = np.random.default_rng(0), []
    runs = len(columns["loss"])
    for _ in range(replicas):
        drawn = generator.integers(runs, size=runs)
        a, b = isoflop.exponents(isoflop.optima({k: v[drawn] for k, v in columns.items()}))
        if a is not None and b is not None:
            found.append((a, b))
    if len(found) < 2:
        return None
    return dict(zip(("a", "b"), np.std(found, axis=0, ddof=1).tolist(), strict=True))


def _check_loss(loss: str | None, delta: float | None) -> None:
    if loss is not None and loss not in LOSSES:
        raise BadInput(f"unknown loss '{loss}': {nearest(loss, LOSSES)}")
    if delta is not None and not 0 < delta < float("inf"):
        raise BadInput(f"delta must be positive, got {delta}")


def _check_form(form: str) -> None:
    if form not in FORMS:
        raise BadInput(f"unknown form '{form}': {nearest(form, FORMS)}")
