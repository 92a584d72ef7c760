"""The recipe behind `headrace adapt MODEL --task TASK --data PATH`: a model and one task of it."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cluster.errors import BadInput
from cluster.settings import nearest
from cluster.store import Store
from flows.overrides import apply_override
from flows.recipe import Recipe, validate
from tasks.data.reading.remote import HUB

TASKS = ("pretrain", "classify", "regress", "label", "extract", "translate", "summarise")
TASKS += ("instruct", "prefer", "distill")
LONGEST_NAME = 64


def adaptation(
    model: str,
    task: str,
    data: str,
    teacher: str | None,
    overrides: Sequence[str],
    seeds: int = 1,
) -> Recipe:
    """The recipe, with `a.b=value` overrides applied. `teacher` is of distillation only.

    Raises BadInput for a task that there is not, a model that cannot be found, and what does not
    fit the recipe.
    """
    if task not in TASKS:
        raise BadInput(f"--task {task}: {nearest(task, TASKS)}")
    if teacher and "teacher" not in _keys(task):
        raise BadInput(f"--teacher: task {task} has none: leave it out")
    if task == "pretrain" and seeds > 1:
        raise BadInput("--seeds: of a tuning; going on with training is done once")
    values: dict[str, Any] = {
        "name": _name(task, model),
        "model": {"from": found(model)},
        "seeds": seeds,
    }
    if task == "pretrain":
        values |= {"sources": [data], "pretrain": {}}
    else:
        taught = {"teacher": found(teacher)} if teacher else {}
        values |= {"pretrain": None, "evaluate": {"answers": None}, task: {"data": data, **taught}}
    for override in overrides:
        apply_override(values, override)
    return validate(values, f"adapt --task {task}")


def found(model: str) -> str:
    """What `from` in a recipe says of a model: its folder, by its path or an artifact's name."""
    if model.startswith(HUB):
        return model
    folder = Path(model).expanduser()
    return str(folder.resolve() if folder.is_dir() else Store().get(model).path)


def _keys(task: str) -> set[str]:
    """The keys of a task's section."""
    section: Any = Recipe.model_fields[task].annotation
    kinds = [kind for kind in section.__args__ if kind is not type(None)]
    return set(kinds[0].model_fields)


def _name(task: str, model: str) -> str:
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", Path(model).name.partition("@")[0]).strip("-.")
    return f"{task}-{stem}"[:LONGEST_NAME].rstrip("-.")
