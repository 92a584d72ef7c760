"""`headrace deploy`: a recipe on a schedule, run by a Prefect worker."""

from typing import Any

from cluster.deployments import deploy
from flows.pipeline import pipeline
from flows.recipe import Recipe


def deploy_recipe(recipe: Recipe, cron: str) -> dict[str, Any]:
    """Create or replace the deployment `headrace/<recipe name>`; its name and next run."""
    parameters = {"recipe": recipe.model_dump(mode="json"), "goal": "all", "rebuild": []}
    return deploy(
        pipeline,
        entrypoint="headrace.pipeline",
        name=recipe.name,
        cron=cron,
        parameters=parameters,
    )
