"""The forecast of a sweep: fit its runs, say what larger ones will do, train those, compare.

Two stages. `fit` leaves `fit.json` and `runs.csv`, which `headrace fit` reads, and tells MLflow its
predictions; the larger runs start after it. `forecast` puts what they measured beside them. A law
the runs cannot determine is reported as such, beside a plain power law in compute and the best loss
so far, which any law must beat.
"""

import math
from typing import TYPE_CHECKING, Any

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.stage import stage
from cluster.store import Draft
from tasks.scaling.law.settings import FitSettings
from tasks.training.facts import FINISHED

if TYPE_CHECKING:
    from tasks.scaling.law.fit import Fitted
    from tasks.scaling.law.runs import Columns

Row = dict[str, Any]
COLUMNS = ("params", "tokens", "flops", "loss")
TABLES = ("residuals", "influence", "sensitivity", "optima", "exponents", "next_runs")
FEWEST_REPLICAS = 50
LEAST_SPAN = 1.1
"""Runs that cost the same but for rounding have no slope in compute."""


@stage(version=7, tracked=True)
def fit(runs: list[Artifact], targets: list[Row], settings: FitSettings, draft: Draft) -> None:
    """Fit the sweep's finished runs and predict the `targets` (`name`, `params`, `tokens`, `flops`
    of each), before these are trained.

    Facts are `runs`, `best`, `fit`, `power`, `cuts`, `predictions`, `identifiable`, `warnings`; and
    where there is a law `residuals`, `suspects`, `influence`, `sensitivity`, `optima`, `exponents`,
    `next_runs` and `curves`, which also lie as CSV.
    Runs that diverged are listed with the reason and take no part. Never raises for too few runs.
    """
    from tasks.scaling.law.runs import write

    rows = [row(run) for run in runs]
    finished = sorted((r for r in rows if r["status"] == FINISHED), key=lambda r: r["flops"])
    fitted = [r for r in finished if r["flops"] >= settings.least_flops]
    (law, found), power = _law(fitted, targets, settings), _power(fitted, targets)
    cuts = [_cut(fitted, targets, settings, most) for most in settings.cuts]
    further = _further(found, fitted, targets) if found else {}
    facts: Row = {
        "runs": rows,
        "best": min(finished, key=lambda r: r["loss"])["name"] if finished else None,
        "fit": law,
        "power": power,
        "cuts": cuts,
        "predictions": _predictions(targets, fitted, law, power, cuts),
        "identifiable": law["identifiable"],
        "warnings": law["warnings"] + _excluded(rows, settings) + further.pop("doubts", []),
        **further,
    }
    draft.rows = len(rows)
    draft.facts.update(facts)
    draft.metrics.update(_metrics(law))
    draft.tracker.params(settings.identity())
    draft.tracker.metrics([{"step": 0, **draft.metrics, **_promised(facts["predictions"])}])
    draft.write_json("fit.json", facts)
    for name in TABLES:
        if table := further.get(name):
            write(draft.path / f"{name}.csv", table)
    for name, line in (further.get("curves") or {}).items():
        if line:
            write(draft.path / f"curve_{name}.csv", line)
    write(draft.path / "runs.csv", [{k: r[k] for k in ("name", *COLUMNS)} for r in finished])


@stage(version=1, tracked=True)
def forecast(fit: Artifact, runs: list[Artifact], draft: Draft) -> None:
    """Predictions against what the larger `runs` measured; errors are predicted / measured - 1.

    Facts are those of the fit with these runs among its `runs`, and `forecast`: `targets`, each
    with `measured`, `predictions` and whether the first of them is `inside` its band; `mean_error`
    over the targets; `beforehand`, whether each prediction was written before its run was done.
    """
    facts, larger = fit.manifest.facts, [row(run) for run in runs]
    told = [_compared(p, r) for p, r in zip(facts["predictions"], larger, strict=True)]
    errors = [t["predictions"][0]["error"] for t in told if t["measured"] and t["predictions"]]
    compared: Row = {
        "targets": told,
        "mean_error": sum(errors) / len(errors) if errors else None,
        "beforehand": all(fit.manifest.created <= run.manifest.created for run in runs),
    }
    failed = [f"{r['name']} has no loss: {r['why']}" for r in larger if r["loss"] is None]
    draft.rows = len(larger)
    draft.facts |= facts | {
        "runs": facts["runs"] + larger,
        "forecast": compared if told else None,
        "warnings": facts["warnings"] + failed,
    }
    draft.metrics |= fit.manifest.metrics
    if errors:
        draft.metrics |= {"forecast_error": compared["mean_error"]}
        draft.metrics |= {"forecast_worst": max(map(abs, errors))}
    draft.tracker.metrics([{"step": 0, **draft.metrics, **_measured(told)}])
    draft.write_json("forecast.json", draft.facts)


def row(run: Artifact) -> Row:
    """One run as the table shows it; `status` is finished, diverged or out of memory."""
    manifest = run.manifest
    metrics, facts = manifest.metrics, manifest.facts
    status = facts.get("status", FINISHED)
    if status == FINISHED and "loss" not in metrics:
        status = "diverged"
    finished = status == FINISHED
    return {
        "name": manifest.label or run.path.name,
        "width": facts.get("width"),
        **{key: metrics.get(key) for key in ("params", "params_non_embedding", "tokens", "flops")},
        "flops_own": metrics.get("flops_own", metrics.get("flops")),
        "loss": metrics.get("loss") if finished else None,
        "bits_per_byte": metrics.get("bits_per_byte") if finished else None,
        "seconds": metrics.get("seconds", manifest.seconds),
        "status": status,
        "why": "" if finished else facts.get("why") or "no held-out loss was recorded",
    }


def _law(fitted: list[Row], targets: list[Row], settings: FitSettings) -> tuple[Row, Any]:
    """The fitted law, with `at` its prediction of every target; without one, the reason."""
    from tasks.scaling.law.fit import describe, fit_law, point
    from tasks.scaling.law.prediction import predict

    delta = settings.delta if settings.loss == "huber" else None
    drawn = max(settings.bootstrap, FEWEST_REPLICAS)
    try:
        law = fit_law(_columns(fitted), settings.form, settings.loss, delta, drawn)
    except BadInput as error:
        doubt = {"identifiable": False, "warnings": [str(error)], "at": []}
        return {"form": settings.form, "n": len(fitted), **doubt}, None
    places = [point(settings.form, (t["params"], t["tokens"])) for t in targets]
    at = [predict(law, place, settings.noise, settings.drift) for place in places]
    return describe(law, errors=settings.bootstrap > 0) | {"at": at}, law


def _further(law: "Fitted", fitted: list[Row], targets: list[Row]) -> Row:
    """What to doubt of a law, what it says of optima, and what to run next."""
    from tasks.scaling.law import diagnostics, isoflop, optimum, prediction, robust
    from tasks.scaling.law.fit import point

    columns, names = _columns(fitted), [r["name"] for r in fitted]
    counts = [r["params_non_embedding"] for r in fitted]
    if None not in counts:
        columns = {**columns, "params_non_embedding": _array(counts)}
    first = targets[0] if targets else None
    at = point(law.form, (first["params"], first["tokens"])) if first else None
    without_NP = robust.leave_one_out(law.problem, law.theta_P)
    bad = diagnostics.suspects(law)
    residual_N = -law.problem.log_residuals(law.theta_P)
    optima = isoflop.optima(columns)
    said = [f"{names[i]} lies {residual_N[i]:.1%} above the law: badly trained?" for i in bad]
    return {
        "doubts": said + isoflop.warnings(optima),
        "suspects": [names[i] for i in bad],
        "residuals": [
            {"name": names[i], "flops": r["flops"], "residual": float(residual_N[i])}
            | {"suspected": i in bad}
            for i, r in enumerate(fitted)
        ],
        "influence": [
            {**row, "run": names[row["run"]]} for row in diagnostics.influence(law, at, without_NP)
        ],
        "sensitivity": diagnostics.sensitivity(columns, law.form, at),
        "optima": optima,
        "exponents": optimum.exponents(columns, law.form),
        "next_runs": prediction.next_runs(law, at) if at else [],
        "curves": prediction.plotted(law, fitted + targets),
    }


def _cut(fitted: list[Row], targets: list[Row], settings: FitSettings, most: float) -> Row:
    """The law of the runs that take up to `most` FLOPs."""
    kept = [r for r in fitted if r["flops"] <= most]
    return {"most_flops": most, **_law(kept, targets, settings)[0]}


def _power(fitted: list[Row], targets: list[Row]) -> Row | None:
    """loss = c flops^a through the runs that no cheaper run beats; `at` every target. None where
    these all cost much the same.
    """
    import numpy as np

    from tasks.scaling.law.fit_file import fit_columns

    frontier: list[Row] = []
    for candidate in fitted:
        if not frontier or candidate["loss"] < frontier[-1]["loss"]:
            frontier.append(candidate)
    if not frontier or frontier[-1]["flops"] < LEAST_SPAN * frontier[0]["flops"]:
        return None
    columns = {"x": "flops", "y": "loss"}
    arrays = {x: np.array([r[name] for r in frontier]) for x, name in columns.items()}
    law = fit_columns(arrays, "power")
    return law | {"at": [{"loss": law["c"] * t["flops"] ** law["a"]} for t in targets]}


def _predictions(
    targets: list[Row], fitted: list[Row], law: Row, power: Row | None, cuts: list[Row]
) -> list[Row]:
    """What is said of each target, the law first; `reach` is its FLOPs over the largest fitted."""
    best = min((r["loss"] for r in fitted), default=None)
    largest = max((r["flops"] for r in fitted), default=None)
    found = []
    for index, target in enumerate(targets):
        guesses = [{"by": law["form"], **law["at"][index]}] if law["at"] else []
        guesses += [{"by": "power in compute", **power["at"][index]}] if power else []
        guesses += [{"by": "best run so far", "loss": best}] if best else []
        guesses += [
            {"by": f"{law['form']}, runs up to {cut['most_flops']:.3g}", **cut["at"][index]}
            for cut in cuts
            if cut["at"]
        ]
        reach = target["flops"] / largest if largest else None
        found.append({**target, "reach": reach, "predictions": guesses})
    return found


def _compared(promise: Row, run: Row) -> Row:
    measured = run["loss"]
    if measured is None:
        return promise | {"measured": None, "inside": None, "status": run["status"]}
    table = [g | {"error": g["loss"] / measured - 1} for g in promise["predictions"]]
    first = table[0] if table else {}
    inside = first["low"] <= measured <= first["high"] if "low" in first else None
    found = {"measured": measured, "inside": inside, "status": run["status"]}
    return promise | found | {"predictions": table}


def _columns(rows: list[Row]) -> "Columns":
    return {name: _array([r[name] for r in rows]) for name in COLUMNS}


def _array(values: list[Any]) -> Any:
    import numpy as np

    return np.array(values, dtype=float)


def _excluded(rows: list[Row], settings: FitSettings) -> list[str]:
    failed = [f"{r['name']} takes no part: {r['why']}" for r in rows if r["status"] != FINISHED]
    small = [r["name"] for r in rows if (r["flops"] or 0) < settings.least_flops]
    said = [f"{name} takes no part: below {settings.least_flops:.3g} FLOPs" for name in small]
    return failed + said


def _metrics(law: Row) -> dict[str, float]:
    known = ("E", "A", "B", "alpha", "beta", "a")
    # Of runs that do not determine it a factor may be beyond all numbers.
    return {k: float(law[k]) for k in known if k in law and math.isfinite(law[k])}


def _promised(predictions: list[Row]) -> dict[str, float]:
    """Predictions as figures for MLflow, by target and way."""
    return {
        f"forecast.{p['name']}.{guess['by'].replace(' ', '_').replace(',', '')}.{key}": guess[key]
        for p in predictions
        for guess in p["predictions"]
        for key in ("loss", "low", "high")
        if key in guess
    }


def _measured(told: list[Row]) -> dict[str, float]:
    found = {}
    for target in told:
        if target["measured"]:
            found[f"forecast.{target['name']}.measured"] = target["measured"]
            for guess in target["predictions"][:1]:
                found[f"forecast.{target['name']}.error"] = guess["error"]
    return found
