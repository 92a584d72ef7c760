"""Runs to fit: a CSV file, or an MLflow experiment, as named columns of positive numbers.

Columns by form: `params,tokens,loss` (and optionally `flops`), `repeated` also `unique_tokens`,
`power` `x,y` (and optionally `weight`). Other columns are left alone.
"""

import csv
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cluster.environment import prepare
from cluster.errors import BadInput
from cluster.settings import nearest
from tasks.data.row_files import read_row_file

Columns = Mapping[str, np.ndarray]
REQUIRED = {
    "chinchilla": ("params", "tokens", "loss"),
    "tied": ("params", "tokens", "loss"),
    "kaplan": ("params", "tokens", "loss"),
    "isoflop": ("params", "tokens", "loss"),
    "repeated": ("params", "tokens", "unique_tokens", "loss"),
    "power": ("x", "y"),
}
OPTIONAL = {"kaplan": ("flops",), "isoflop": ("flops",), "power": ("weight",)}
NAMES = ("params", "tokens", "loss", "flops", "unique_tokens", "x", "y", "weight")
"""All that any form reads."""


def read(path: Path, form: str, theirs: Mapping[str, str]) -> Columns:
    """The columns that `form` needs, each [rows], parted by commas, semicolons or tabs; `theirs`
    are the file's own names by ours.

    Raises BadInput for an unreadable file, an absent column, and a cell that is not a positive
    finite number (naming its row, counted from 1 below the header).
    """
    rows = table(path)
    header = list(rows[0])
    for name in REQUIRED[form]:
        if theirs.get(name, name) not in header:
            raise BadInput(
                f"{path} has no column '{theirs.get(name, name)}', which --form {form} needs: "
                f"{_hint(theirs.get(name, name), header)}"
            )
    wanted = [*REQUIRED[form], *(c for c in OPTIONAL.get(form, ()) if theirs.get(c, c) in header)]
    return {name: _column(path, theirs.get(name, name), rows) for name in wanted}


def table(path: Path | str) -> list[dict[str, Any]]:
    """The rows of a file, by the names in its header. Raises BadInput for an unreadable file, and
    for one without rows.
    """
    if rows := [row for _, row in read_row_file(Path(path))]:
        return rows
    raise BadInput(f"{path} has no rows; expected columns, and a run in each line below them")


def distinct(columns: Columns) -> np.ndarray:
    """Index of the first of each run [distinct runs], in their order: one whose every column is
    that of an earlier row is the same run again.
    """
    rows_NK = np.stack(list(columns.values()), axis=-1)
    return np.sort(np.unique(rows_NK, axis=0, return_index=True)[1])


def from_mlflow(experiment: str, form: str, theirs: Mapping[str, str]) -> Columns:
    """The columns that `form` needs from the runs of an MLflow experiment: their last metrics of
    those names, or of `theirs`. Runs without all of them, such as stages that are no runs of a
    sweep, are left out.

    Raises BadInput for an unknown experiment and one without any such run.
    """
    from mlflow.tracking import MlflowClient

    prepare()
    client = MlflowClient(os.environ["MLFLOW_TRACKING_URI"])
    found = client.get_experiment_by_name(experiment)
    if found is None:
        names = [e.name for e in client.search_experiments()]
        raise BadInput(f"no MLflow experiment '{experiment}': {nearest(experiment, names)}")
    runs, token = [], None
    while token != "":
        page = client.search_runs([found.experiment_id], page_token=token)
        runs += [run.data.metrics for run in page]
        token = page.token or ""
    wanted = {name: theirs.get(name, name) for name in REQUIRED[form]}
    rows = [m for m in runs if all(m.get(name, 0) > 0 for name in wanted.values())]
    if not rows:
        raise BadInput(
            f"experiment '{experiment}' has {len(runs)} runs, none with the metrics "
            f"{', '.join(wanted.values())}; other names are given as --columns params=n"
        )
    wanted |= {
        name: theirs.get(name, name)
        for name in OPTIONAL.get(form, ())
        if all(m.get(theirs.get(name, name), 0) > 0 for m in rows)
    }
    return {ours: np.array([m[name] for m in rows]) for ours, name in wanted.items()}


def write(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write dictionaries as CSV; a key that a row lacks is an empty cell."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)


def _column(path: Path, name: str, rows: list[dict[str, Any]]) -> np.ndarray:
    return np.array([_number(path, name, i, row.get(name)) for i, row in enumerate(rows, start=1)])


def _number(path: Path, name: str, row: int, cell: Any) -> float:
    try:
        value = float(cell)
    except (TypeError, ValueError):
        raise BadInput(
            f"{path}, row {row}, column '{name}': '{cell}' is not a number; leave out runs without "
            "one"
        ) from None
    if not 0 < value < float("inf"):
        raise BadInput(
            f"{path}, row {row}, column '{name}': {cell} is not positive and finite; "
            "leave out runs that diverged"
        )
    return value


def _hint(name: str, header: list[str]) -> str:
    hint = nearest(name, header)
    if hint.startswith("did"):
        return hint
    return f"its columns are {', '.join(header)}; other names are given as --columns params=n"
