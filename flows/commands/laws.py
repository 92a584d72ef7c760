"""forecasts: what laws foretold, held against what came."""

import typer

from cluster.home import home as root
from flows.commands.options import AsJson, Home
from flows.views.output import output


def forecasts(home: Home = None, as_json: AsJson = False) -> None:
    """Every forecast that runs of this home made, against what came; do the bands hold?

    A forecast counts when it was written down before the run that it foretells was trained.
    """
    from cluster.runs import records
    from flows.views.laws import show_forecasts
    from tasks.scaling.forecasts import coverage, everything

    with output(as_json) as out:
        found = everything(record.forecasts for record in records(root()))
        result = {"forecasts": found, **coverage(found)}
        out.result(result)
        show_forecasts(out, result)


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    app.command()(forecasts)
