"""The report's section on a sweep: its forecast, law, doubts, plots and runs."""

from collections.abc import Sequence
from typing import Any

from cluster.artifact import Artifact
from tasks.report import scaling_plots

View = dict[str, Any]
NAMES = (
    "E",
    "A",
    "B",
    "alpha",
    "beta",
    "N_c",
    "D_c",
    "C_c",
    "alpha_N",
    "alpha_D",
    "alpha_C",
    "a",
    "b",
)
TABLES = {
    "exponents": "Exponents of optimal parameters (a) and tokens (b), by what is counted",
    "optima": "Lowest points at equal compute",
    "sensitivity": "The same law by other losses and without some runs",
    "influence": "What leaving out one run changes",
    "next_runs": "Runs that would shrink the band of the first target most per FLOP",
}


def scaling(fits: Sequence[Artifact], runs: Sequence[Artifact]) -> View:
    """What the last fit, or the forecast made of it, says; empty without one. `runs` give the
    training curves.
    """
    facts = fits[-1].manifest.facts if fits else {}
    if "runs" not in facts:
        return {}
    law = facts["fit"]
    errors = law.get("std_err") or {}
    curves = {a.manifest.label: a.manifest.facts.get("history", []) for a in runs}
    return {"forecast": None, "doubt": None, **facts} | {
        "plots": scaling_plots.drawn(facts, curves),
        "parameters": [(n, law[n], errors.get(n)) for n in NAMES if law.get(n) is not None],
        "band": law.get("E_band"),
        "tables": _tables(facts),
    }


def _tables(facts: View) -> list[View]:
    """The tables of doubt that the fit left."""
    found = ((title, facts.get(key)) for key, title in TABLES.items())
    return [_table(title, rows) for title, rows in found if rows]


def _table(title: str, rows: Sequence[View]) -> View:
    """Rows of dictionaries under the names of all their keys."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [[row.get(name) for name in names] for row in rows]
    return {"title": title, "names": [name.replace("_", " ") for name in names], "rows": cells}
