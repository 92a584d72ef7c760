"""trace, erase: where a document went, and taking it out."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cluster.errors import BadInput
from flows.commands.carrying_out import run_planned
from flows.commands.options import AsJson, Home
from flows.days import day_of
from flows.views.output import output, waiting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flows.plan.dag import Dag
    from flows.recipe import Recipe
    from tasks.forgetting.changes import Change

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


def erase(
    text: Text = None,
    id_: Id = None,
    file: File = None,
    pattern: Pattern = None,
    license_: License = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only say what would be done")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask, on a terminal either")] = False,
    replay_only: Annotated[
        bool,
        typer.Option(
            "--replay-only",
            help="refuse where a model would be trained from its first step",
        ),
    ] = False,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Take a document out of the corpus and the models, now and in every later run.

    What `trace` finds is planned, shown and, on a terminal, asked about. Shards keep the places of
    all other documents; a model that saw the document goes back to its last checkpoint before that
    and is trained on exactly; what descends is built again, and then the old is removed. Killed
    anywhere, the same command goes on.

    headrace erase "a sentence of it" --dry-run
    headrace erase --id data.jsonl/d17 --yes --json
    """
    from flows.forgetting import carried_out, finished, prepared, what_it_takes
    from flows.views.forgetting import show_certificate, show_plan
    from tasks.forgetting.asked import Asked
    from tasks.forgetting.journal import Journal

    with output(as_json) as out:
        asked = Asked(text=text, id=id_, file=file, pattern=pattern, license=license_).check()
        del sys.argv[2:]  # else what is asked would stand in the records of the runs
        with waiting("following it through the artifacts"):
            there = prepared(asked)
        if isinstance(there, Journal):
            plan, journal = there.certificate, there
        else:
            plan = what_it_takes(there)
            show_plan(out, plan)
            out.result(plan)
            if dry_run:
                return
            if replay_only and there.lost:
                raise BadInput(_refusal(there.lost))
            if not yes and sys.stdin.isatty() and not typer.confirm("Go on?", err=True):
                raise typer.Abort
            journal = carried_out(there, asked, _run)
        result = plan | finished(journal)
        out.result(result)
        show_certificate(out, result)


def _refusal(lost: "Sequence[Change]") -> str:
    told = "; ".join(f"{change.old.name}: {change.why}" for change in lost)
    return (
        f"--replay-only: {len(lost)} trainings would begin at their first step: {told}. Leave the "
        "option out to train them anew; `pretrain.kept_checkpoints` keeps checkpoints next time"
    )


def _run(dag: "Dag", recipe: "Recipe", goal: str) -> "Mapping[str, Any]":
    """Carry out a plan as `headrace run` does."""
    return run_planned(dag, recipe, goal, (), (), day_of(None))
