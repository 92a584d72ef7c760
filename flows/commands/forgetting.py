"""trace, erase: where a document went, and taking it out."""

from typing import Annotated

import typer

from flows.commands.options import AsJson, Home
from flows.views.output import output, waiting

Text = Annotated[
    str | None, typer.Argument(help="rows that hold this text, up to white space; and near copies")
]
Id = Annotated[str | None, typer.Option("--id", help="the row of this id, or this field `id`")]
File = Annotated[
    str | None,
    typer.Option("--file", help="rows of this source file; of another, rows that hold its text"),
]
Pattern = Annotated[
    str | None, typer.Option("--pattern", metavar="REGEX", help="rows that match it")
]
License = Annotated[
    str | None, typer.Option("--license", help="rows with this license; `unknown` without one")
]


def trace(
    text: Text = None,
    id_: Id = None,
    file: File = None,
    pattern: Pattern = None,
    license_: License = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Where a document went: rows, near copies among them, shards, samples and steps at which each
    model saw it, all that descends from it, and what it shaped without being in it.

    headrace trace "a sentence of it"
    headrace trace --id data.jsonl/d17 --json
    """
    from cluster.store import Store
    from flows.views.forgetting import show_trace
    from tasks.forgetting.asked import Asked
    from tasks.forgetting.trace import follow

    with output(as_json) as out:
        asked = Asked(text=text, id=id_, file=file, pattern=pattern, license=license_).check()
        with waiting("following it through the artifacts"):
            result = follow(asked, Store()).told()
        out.result(result)
        show_trace(out, result)


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    app.command()(trace)
