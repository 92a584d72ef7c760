"""`headrace deploy`: a recipe on a schedule, run by a Prefect worker."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cluster.deployments import Pool, deploy
from cluster.errors import BadInput
from flows.pipeline import pipeline
from flows.recipe import Recipe


def deploy_recipe(recipe: Recipe, cron: str, pool: Pool, image: str | None) -> dict[str, Any]:
    """Create or replace the deployment `headrace/<recipe name>`; its name, next run and pool.

    Raises BadInput where containers could not do what is asked of them.
    """
    if pool != "process":
        _check_no_paths(recipe)
    parameters = {"recipe": recipe.model_dump(mode="json"), "goal": "all", "rebuild": []}
    return deploy(
        pipeline,
        entrypoint="headrace.pipeline",
        name=recipe.name,
        cron=cron,
        parameters=parameters,
        pool=pool,
        image=image,
    )


def _check_no_paths(recipe: Recipe) -> None:
    """Raise BadInput where the recipe names files of this machine, which a container has not."""
    for text in _texts(recipe.model_dump(mode="json")):
        if _is_here(text):
            raise BadInput(
                f"{text} is a path of this machine, which a container does not have: copy it to "
                "where both reach it and name that (s3://bucket/...), or use --pool process"
            )


def _texts(value: Any) -> Iterator[str]:
    """Every text among some JSON values."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


def _is_here(text: str) -> bool:
    """Whether a text is a path or a pattern of files that this machine has; a plain word is not."""
    if "://" in text or not set(text) & {"/", "."}:
        return False
    path = Path(text).expanduser()
    try:
        return path.exists() or any(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
    except (OSError, ValueError, NotImplementedError):  # no path at all
        return False
