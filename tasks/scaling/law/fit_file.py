"""Fit scaling laws to runs from anywhere, with the doubt stated: `headrace fit RUNS.csv`.

The forms are in `laws`, the objective and its two minimisers in `robust`. A fit says whether its
parameters are identifiable; where they are not, a law with few parameters is the honest choice.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cluster.errors import BadInput
from cluster.settings import nearest
from tasks.data.row_files import AS_THEY_ARE
from tasks.data.row_files import Columns as Named
from tasks.scaling.law import isoflop, prediction
from tasks.scaling.law.diagnostics import suspects
from tasks.scaling.law.fit import DEFAULT_DELTA, Fitted, Report, describe, fit_law, point
from tasks.scaling.law.laws import Law
from tasks.scaling.law.runs import REQUIRED, Columns, distinct, from_mlflow, read

FORMS = tuple(REQUIRED)
LOSSES = ("huber", "lad", "squares")


def fit_file(
    path: Path | str,
    form: str = "chinchilla",
    loss: str | None = None,
    delta: float | None = None,
    bootstrap: int = 0,
    predict: Sequence[Sequence[float]] = (),
    names: Named = AS_THEY_ARE.columns,
) -> Report:
    """Fit the runs of a CSV file, or of an MLflow experiment given as `mlflow:NAME`; see
    `fit_columns`. `names` are the file's own, by ours, of columns or metrics. Raises BadInput for
    unusable runs.
    """
    _check_form(form)
    named, theirs = str(path).removeprefix("mlflow:"), {n: v[0] for n, v in names.items()}
    if named == str(path):
        columns = read(Path(path), form, theirs)
    else:
        columns = from_mlflow(named, form, theirs)
    return fit_columns(columns, form, loss, delta, bootstrap, predict)


def fit_columns(
    columns: Columns,
    form: str = "chinchilla",
    loss: str | None = None,
    delta: float | None = None,
    bootstrap: int = 0,
    predict: Sequence[Sequence[float]] = (),
    given: Law | None = None,
) -> Report:
    """Fit runs given as columns [N]; the report is what `headrace fit --json` prints.

    `loss` is huber (default) with `delta` (default 1e-3) or lad, which has none, of log residuals,
    or squares of the loss itself, which is the default of `tied` (Gadre 2024, appendix); `power`
    and `isoflop` are fitted by least squares of logarithms. `bootstrap` resamples of the runs give
    standard errors. `predict` are places (params, tokens), for repeated also unique tokens, for
    power (x,); see `prediction.predict` for their 90 % bands. `given` is the form's law with some
    parameters known (`laws.keeping`). A row that is there several times is one run, and a warning
    says so. Raises BadInput for an unknown form or loss, fewer runs than parameters, and a
    prediction the form cannot make.
    """
    _check_form(form)
    _check_loss(loss, delta)
    columns, first_N, warnings = _once(columns)
    if form == "isoflop":
        report = _fit_isoflop(columns, bootstrap, predict)
    else:
        places = [point(form, at) for at in predict]
        fitted = fit_law(columns, form, loss, delta, bootstrap, given)
        report = describe(fitted, errors=bootstrap > 0)
        if form == "kaplan":
            report["separate"] = separate(columns)
        if form != "power":
            report |= _suspects(fitted, first_N)
        if places:
            report["predictions"] = [_predicted(fitted, at) for at in places]
            report["prediction"] = report["predictions"][0]
    unusual = loss not in (None, "huber") or delta not in (None, DEFAULT_DELTA)
    if form in ("isoflop", "power") and unusual:
        warnings += [f"{form} is fitted by least squares; loss and delta do not apply to it"]
    report["warnings"] = warnings + report["warnings"]
    return report


def _once(columns: Columns) -> tuple[Columns, np.ndarray, list[str]]:
    """Each run once, the index of its first row [N], and a warning of how many rows that left out:
    a run counted twice weighs double and makes every band too narrow.
    """
    first_N = distinct(columns)
    again = len(next(iter(columns.values()))) - len(first_N)
    rows = "1 row repeats another" if again == 1 else f"{again} rows repeat others"
    said = [f"{rows} in every column and {'is' if again == 1 else 'are'} left out"] if again else []
    return {name: column[first_N] for name, column in columns.items()}, first_N, said


def _predicted(fitted: Fitted, at: Columns) -> Report:
    place = {name: float(column[0]) for name, column in at.items()}
    return place | prediction.predict(fitted, at)


def _suspects(fitted: Fitted, first_N: np.ndarray) -> Report:
    """Rows, counted from 1, of runs that look badly trained, and a warning about them."""
    rows = [int(first_N[index]) + 1 for index in suspects(fitted)]
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


def _fit_isoflop(columns: Columns, replicas: int, predict: Sequence[Sequence[float]]) -> Report:
    if predict:
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
