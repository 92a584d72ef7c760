"""export: a model as others load it."""

from pathlib import Path
from typing import Annotated

import typer

from flows.commands.options import AsJson, Home
from flows.exporting import Format, Type
from flows.views.output import human, output, waiting


def export(
    model: Annotated[str, typer.Argument(help="a model folder or an artifact's name")],
    to: Annotated[Path, typer.Option(help="a new folder; of gguf also a file *.gguf")],
    format_: Annotated[
        Format, typer.Option("--format", help="hf: as Transformers has it; gguf: llama.cpp")
    ] = "hf",
    type_: Annotated[
        Type | None,
        typer.Option(
            "--type", help="of the weights; else hf: as they are, gguf: f16; q8_0: of gguf"
        ),
    ] = None,
    push: Annotated[
        str | None, typer.Option(metavar="URL", help="upload it, too: hf://org/name")
    ] = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Hand a model over: weights, tokenizer, and a card of what is known of it.

    headrace export instruct --to my-model --type bf16
    headrace export instruct --to my-model.gguf --format gguf --type q8_0
    """
    from flows.exporting import export as carried_out

    with output(as_json) as out:
        with waiting(f"writing {to}"):
            found = carried_out(model, to, format_, type_, push)
        out.result(found)
        size = human(found["bytes"], "B")
        out.say(f"{found['path']}: {found['architecture']} in {found['type']}, {size}")
        if found["url"]:
            out.say(f"uploaded to {found['url']}, which is private until you say otherwise there")
