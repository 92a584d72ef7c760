"""A run by the name people give it: its id, the beginning of one, or its recipe's name."""

from pathlib import Path

from cluster.errors import BadInput
from cluster.runs import RunRecord, records
from cluster.settings import nearest


def find_run(root: Path, name: str) -> RunRecord:
    """The run with this id, else the newest of the recipe with this name, else the only run whose
    id begins so. Raises BadInput, with the nearest name, when there is none or more than one.
    """
    known = records(root)
    if not known:
        raise BadInput(f"no run '{name}': no run was recorded in {root} yet; `headrace run` is one")
    for found in (
        [run for run in known if run.id == name],
        [run for run in known if run.recipe.get("name") == name][-1:],
        [run for run in known if run.id.startswith(name)],
    ):
        if len(found) == 1:
            return found[0]
        if found:
            ids = ", ".join(run.id for run in found)
            raise BadInput(f"{len(found)} runs begin with '{name}': {ids}")
    names = {str(run.recipe.get("name")) for run in known} | {run.id for run in known[-20:]}
    raise BadInput(f"no run '{name}': {nearest(name, names)}")
