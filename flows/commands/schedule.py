"""deploy, backfill: runs on a schedule, and for days that are past."""

from datetime import UTC, datetime
from typing import Annotated, Literal

import typer

from flows.commands.options import AsJson, Home, Overrides, RecipeName
from flows.views.output import output

DAYS = ["%Y-%m-%d"]


def deploy(
    recipe: RecipeName,
    cron: Annotated[str, typer.Option(help='when to run, in cron form, in UTC: "0 3 * * *"')],
    overrides: Overrides = None,
    overlap: Annotated[
        Literal["enqueue", "cancel"],
        typer.Option(help="what becomes of a run that is due while another goes on"),
    ] = "enqueue",
    retries: Annotated[
        int, typer.Option(min=0, help="how often a run that failed is tried again")
    ] = 0,
    retry_delay: Annotated[float, typer.Option(min=0, help="seconds before each retry")] = 60.0,
    tag: Annotated[list[str] | None, typer.Option(help="of its runs, to find them by")] = None,
    notify: Annotated[
        str | None,
        typer.Option(
            metavar="URL|TYPE/NAME",
            help="who is told of runs that fail: a webhook, or a notification block of Prefect's",
        ),
    ] = None,
    pool: Annotated[
        Literal["process", "docker", "kubernetes"],
        typer.Option(help="what runs it: a process on this machine, or containers elsewhere"),
    ] = "process",
    image: Annotated[
        str | None, typer.Option(help="of the containers, built from Headrace's Dockerfile")
    ] = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Schedule a recipe: a Prefect deployment whose parameters are the recipe's own schema.

    One of its runs goes on at a time. Containers get the addresses of PREFECT_API_URL,
    MLFLOW_TRACKING_URI, RAY_ADDRESS and HEADRACE_STORE, and no path of this machine; their secrets
    are the worker's or the cluster's.
    """
    from cluster.deployments import Schedule
    from flows.deployment import deploy_recipe
    from flows.recipe import load

    with output(as_json) as out:
        schedule = Schedule(
            cron=cron,
            overlap=overlap,
            retries=retries,
            retry_seconds=retry_delay,
            tags=tuple(tag or ()),
            notify=notify,
        )
        asked = overrides or ()
        result = deploy_recipe(load(recipe, asked), asked, schedule, pool, image)
        out.result(result)
        out.say(f"deployed {result['deployment']}, next run {result['next_run']}")
        if pool != "process":
            out.say(f"a worker runs it: prefect worker start --pool {result['pool']} --type {pool}")


def backfill(
    deployment: Annotated[str, typer.Argument(help="the name of a recipe that is deployed")],
    first: Annotated[datetime, typer.Option("--from", formats=DAYS, help="the first day")],
    last: Annotated[
        datetime | None, typer.Option("--to", formats=DAYS, help="the last; default today (UTC)")
    ] = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Run a deployment for days that are past: {date} in its sources' paths is each of them.

    What a day has built already is found. The runs go one after the other, as all of a deployment.
    """
    from flows.deployment import backfill as schedule

    with output(as_json) as out:
        result = schedule(deployment, first.date(), (last or datetime.now(UTC)).date())
        out.result(result)
        for run in result["runs"]:
            out.say(f"{run['date']}  flow run {run['id']}")
