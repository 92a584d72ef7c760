"""The forecast of a sweep: fit its runs without the largest, predict that one, compare.

Leaves `fit.json` (runs, fit, forecast) and `runs.csv`, which `headrace fit` reads. A law the runs
cannot determine is reported as such, beside a plain power law in compute, which needs two runs.
"""

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.settings import Settings
from cluster.stage import stage
from cluster.store import Draft

if TYPE_CHECKING:
    from tasks.scaling.runs import Columns

Row = dict[str, Any]
COLUMNS = ("params", "tokens", "flops", "loss")


class FitSettings(Settings):
    """How a sweep's runs are fitted."""

    form: Literal["chinchilla", "tied", "kaplan"] = Field(
        "chinchilla", description="law of the loss in params and tokens"
    )
    loss: Literal["huber", "lad"] = Field("huber", description="loss of the log residuals")
    delta: float = Field(1e-3, gt=0, description="where Huber's loss turns linear, in log units")
    bootstrap: int = Field(200, ge=0, description="resamples of the runs behind errors and bands")
    noise: float = Field(
        0.006, ge=0, description="relative spread of one run's loss over seeds, put into the band"
    )
    holdout: bool = Field(True, description="keep the largest run out of the fit and predict it")


@stage(version=1)
def fit(runs: list[Artifact], settings: FitSettings, draft: Draft) -> None:
    """Fit the sweep's finished runs; facts are `runs`, `fit`, `power` and `forecast`.

    Runs that diverged are listed with the reason and take no part. Never raises for too few runs.
    """
    from tasks.scaling.runs import write

    rows = [row(run) for run in runs]
    finished = sorted((r for r in rows if r["status"] == "finished"), key=lambda r: r["flops"])
    held = finished[-1] if settings.holdout and len(finished) > 2 else None
    fitted = [r for r in finished if r is not held]
    law, power = _law(fitted, held, settings), _power(fitted, held)
    facts = {
        "runs": rows,
        "best": min(finished, key=lambda r: r["loss"])["name"] if finished else None,
        "fit": law,
        "power": power,
        "forecast": _forecast(held, fitted, law, power) if held else None,
        "identifiable": law["identifiable"],
        "warnings": law["warnings"] + _excluded(rows),
    }
    draft.rows = len(rows)
    draft.facts.update(facts)
    draft.metrics.update(_metrics(facts))
    draft.write_json("fit.json", facts)
    write(draft.path / "runs.csv", [{k: r[k] for k in ("name", *COLUMNS)} for r in finished])


def row(run: Artifact) -> Row:
    """One run as the table shows it; `status` is finished or diverged."""
    manifest = run.manifest
    metrics, facts = manifest.metrics, manifest.facts
    finished = "loss" in metrics and facts.get("status", "finished") == "finished"
    return {
        "name": manifest.label or run.path.name,
        "width": facts.get("width"),
        "params": metrics.get("params"),
        "tokens": metrics.get("tokens"),
        "flops": metrics.get("flops"),
        "loss": metrics.get("loss") if finished else None,
        "bits_per_byte": metrics.get("bits_per_byte") if finished else None,
        "seconds": metrics.get("seconds", manifest.seconds),
        "status": "finished" if finished else "diverged",
        "why": "" if finished else facts.get("why", "no held-out loss was recorded"),
    }


def _law(fitted: list[Row], held: Row | None, settings: FitSettings) -> Row:
    """The fitted law, with its prediction of the held-out run; without one, the reason."""
    from tasks.scaling.fit import fit_columns

    try:
        return fit_columns(
            _columns(fitted),
            settings.form,
            settings.loss,
            settings.delta if settings.loss == "huber" else None,
            settings.bootstrap,
            (held["params"], held["tokens"]) if held else None,
            noise=settings.noise,
        )
    except BadInput as error:
        reasons = [str(error)]
        return {"form": settings.form, "n": len(fitted), "identifiable": False, "warnings": reasons}


def _power(fitted: list[Row], held: Row | None) -> Row | None:
    """loss = c flops^a through the runs that no cheaper run beats."""
    import numpy as np

    from tasks.scaling.fit import fit_columns

    frontier: list[Row] = []
    for candidate in fitted:
        if not frontier or candidate["loss"] < frontier[-1]["loss"]:
            frontier.append(candidate)
    if len({r["flops"] for r in frontier}) < 2:
        return None
    columns = {"x": "flops", "y": "loss"}
    arrays = {x: np.array([r[name] for r in frontier]) for x, name in columns.items()}
    return fit_columns(arrays, "power", predict=(held["flops"],) if held else None)


def _forecast(held: Row, fitted: list[Row], law: Row, power: Row | None) -> Row:
    """Predicted against measured; errors are predicted / measured - 1."""
    guesses = {
        law["form"]: law.get("prediction"),
        "power in compute": power and power["prediction"],
        "best run so far": {"loss": min(r["loss"] for r in fitted)},
    }
    measured = held["loss"]
    table = [
        {"by": by, **guess, "error": guess["loss"] / measured - 1}
        for by, guess in guesses.items()
        if guess
    ]
    chosen = table[0]
    return {
        **{k: held[k] for k in ("name", "params", "tokens", "flops")},
        "reach": held["flops"] / fitted[-1]["flops"],
        "measured": measured,
        "predictions": table,
        "inside": chosen.get("low", 0) <= measured <= chosen.get("high", float("inf"))
        if "low" in chosen
        else None,
    }


def _columns(rows: list[Row]) -> "Columns":
    import numpy as np

    return {name: np.array([r[name] for r in rows], dtype=float) for name in COLUMNS}


def _excluded(rows: list[Row]) -> list[str]:
    return [f"{r['name']} takes no part: {r['why']}" for r in rows if r["status"] != "finished"]


def _metrics(facts: Row) -> dict[str, float]:
    keys = ("E", "A", "B", "alpha", "beta")
    found = {k: float(facts["fit"][k]) for k in keys if k in facts["fit"]}
    if facts["forecast"]:
        first = facts["forecast"]["predictions"][0]
        found |= {"forecast_loss": first["loss"], "forecast_error": first["error"]}
    return found
