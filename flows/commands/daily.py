"""init, schema, stop: a recipe to begin with, help for editors, the end of a run."""

import json
from typing import Annotated

import typer

from cluster.home import home as root
from flows.commands.options import AsJson, Home, RunName
from flows.views.output import output, waiting

GOES_ON = "what is built is kept, and the same command goes on from its checkpoints"


def init(
    sources: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TEXT|PATH.yaml]", help="your text; the file to write"),
    ] = None,
    name: Annotated[str | None, typer.Option(help="of the recipe; default from the text")] = None,
    text: Annotated[
        str | None, typer.Option(metavar="FIELD", help="the field of rows that holds the text")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a commented recipe for your own text; nothing that is there is changed.

    headrace init data/*.jsonl          # writes data.yaml
    headrace init books/ novels.yaml    # writes novels.yaml
    headrace init                       # writes mine.yaml, of the embedded corpus
    """
    from flows.commands.new_recipe import write_recipe

    with output(as_json) as out:
        path = write_recipe(sources or (), name, text)
        out.result({"path": str(path.resolve()), "next": f"headrace run {path}"})
        out.say(f"wrote {path}; look it over, then: headrace run {path}")


def schema(as_json: AsJson = False) -> None:
    """Print the recipe's JSON schema, by which editors complete, describe and check recipes.

    headrace schema > headrace.schema.json

    An editor with the YAML language server (VS Code's YAML extension, Neovim, Zed) uses the
    schema that a comment at the top of the recipe names:

    # yaml-language-server: $schema=headrace.schema.json
    """
    from flows.schema import recipe_schema

    with output(as_json) as out:
        found = recipe_schema()
        out.result(found)
        if not as_json:
            typer.echo(json.dumps(found, indent=1))


def stop(run: RunName, home: Home = None, as_json: AsJson = False) -> None:
    """End a running run: its trainings leave a checkpoint, and the same command goes on from there.

    It has two minutes to put itself in order, then it is killed; that loses a few seconds of work.
    """
    from cluster.run_stop import stop_run

    with output(as_json) as out:
        with waiting(f"stopping {run}"):
            record, done = stop_run(root(), run)
        command = f"headrace {'run' if record.goal == 'all' else record.goal} ..."
        said = {
            "stopped": f"{record.id} is stopped; {GOES_ON}, {command}",
            "killed": f"{record.id} did not end by itself and was killed; {GOES_ON}, {command}",
            "gone": f"{record.id} was killed before; {GOES_ON}, {command}",
            "ended": f"{record.id} had ended before: {record.status}",
        }
        out.result({"id": record.id, "done": done, "status": record.status, "said": said[done]})
        out.say(said[done])
