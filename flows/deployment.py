"""`headrace deploy`, `backfill`: a recipe on a schedule, run by a Prefect worker."""

from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.deployments import Pool, Schedule, deploy
from cluster.errors import BadInput
from cluster.prefect_server import client
from cluster.services import up
from cluster.settings import texts
from cluster.url_secrets import check_kept
from flows.days import DAY
from flows.pipeline import pipeline
from flows.recipe import Recipe

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.responses import DeploymentResponse


def deploy_recipe(
    recipe: Recipe,
    overrides: Sequence[str],
    schedule: Schedule,
    pool: Pool,
    image: str | None,
) -> dict[str, Any]:
    """Create or replace the deployment `headrace/<recipe name>`; its name, next run, pool, queue.

    `overrides`, which the recipe has, name its runs. Those that ask for GPUs are in the queue `gpu`
    of the pool, the others in `cpu`. Raises BadInput where containers could not do what is asked.
    """
    if pool != "process":
        _check_no_paths(recipe)
    check_kept(recipe.model_dump_json())
    queue = "gpu" if recipe.placement.gpus else "cpu"
    parameters = {
        "recipe": recipe.model_dump(mode="json"),
        "goal": "all",
        "rebuild": [],
        "overrides": list(overrides),
    }
    return deploy(
        pipeline,
        entrypoint="headrace.pipeline",
        name=recipe.name,
        schedule=schedule.model_copy(update={"queue": queue}),
        parameters=parameters,
        pool=pool,
        image=image,
    )


def backfill(name: str, first: date, last: date) -> dict[str, Any]:
    """A run of a deployment for each day from `first` to `last`, one after the other.

    Raises BadInput where there is no such deployment, its runs have no day, or would not wait.
    """
    days = [first + timedelta(days=after) for after in range((last - first).days + 1)]
    if not days:
        raise BadInput(f"--from {first} --to {last}: no day; the first comes first")
    up()
    with client() as server:
        deployment = _deployed(server, name)
        runs = [
            server.create_flow_run_from_deployment(
                deployment.id, parameters={"date": day.isoformat()}, tags=["backfill"]
            )
            for day in days
        ]
    made = [{"date": str(day), "id": str(run.id)} for day, run in zip(days, runs, strict=True)]
    return {"deployment": f"headrace/{name}", "runs": made}


def _deployed(server: "SyncPrefectClient", name: str) -> "DeploymentResponse":
    """The deployment of a recipe, if runs for several days can be had of it."""
    from prefect.exceptions import ObjectNotFound

    try:
        found = server.read_deployment_by_name(f"headrace/{name}")
    except ObjectNotFound as error:
        raise BadInput(
            f"no deployment 'headrace/{name}'; `headrace deploy {name} --cron ...` makes it"
        ) from error
    if not Recipe.model_validate(found.parameters["recipe"]).dated:
        raise BadInput(
            f"headrace/{name}: no source has {{date}} in its path, so that every day is the same"
        )
    options = found.concurrency_options
    if options and options.collision_strategy == "CANCEL_NEW":
        raise BadInput(
            f"headrace/{name} cancels a run while another goes on (--overlap cancel), and a "
            "backfill is many: deploy it with --overlap enqueue"
        )
    return found


def _check_no_paths(recipe: Recipe) -> None:
    """Raise BadInput where the recipe names files of this machine, which a container has not."""
    for text in texts(recipe.model_dump(mode="json")):
        if _is_here(text):
            raise BadInput(
                f"{text} is a path of this machine, which a container does not have: copy it to "
                "where both reach it and name that (s3://bucket/...), or use --pool process"
            )


def _is_here(text: str) -> bool:
    """Whether a text is a path or a pattern of files that this machine has; a plain word is not."""
    if "://" in text or not set(text) & {"/", "."}:
        return False
    path = Path(DAY.sub("*", text)).expanduser()
    try:
        return path.exists() or any(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
    except (OSError, ValueError, NotImplementedError):  # no path at all
        return False
