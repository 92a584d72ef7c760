"""generate: text from a model."""

from typing import Annotated

import typer

from flows.commands.options import AsJson, Home
from flows.output import output


def generate(
    model: Annotated[str, typer.Argument(help="a model folder or an artifact's name")],
    prompt: Annotated[str, typer.Option(help="text to continue, or to answer with --chat")],
    decoding: Annotated[str, typer.Option(help="greedy, sample, beam or mbr")] = "greedy",
    temperature: Annotated[float, typer.Option(min=0.0, help="of sampling")] = 1.0,
    top_k: Annotated[int | None, typer.Option(min=1, help="sample from the k likeliest")] = None,
    top_p: Annotated[float, typer.Option(min=0.0, max=1.0, help="probability mass kept")] = 1.0,
    num_beams: Annotated[int, typer.Option(min=1, help="beams, or samples of mbr")] = 8,
    max_tokens: Annotated[int, typer.Option(min=1, help="tokens to generate at most")] = 64,
    seed: Annotated[int, typer.Option(help="of sampling")] = 0,
    chat: Annotated[bool, typer.Option("--chat", help="wrap the prompt as a user's turn")] = False,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Continue a prompt with a trained model."""
    from pathlib import Path

    from cluster.store import Store
    from tasks.generation import GenerationSettings, generate_text

    with output(as_json) as out:
        settings = GenerationSettings(
            decoding=decoding,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            num_beams=num_beams,
            samples=num_beams,
            max_tokens=max_tokens,
            seed=seed,
            chat=chat,
        )
        folder = Path(model) if Path(model).is_dir() else Store().get(model).path
        result = generate_text(folder, prompt, settings)
        out.result(result)
        out.say(result["text"])


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    app.command()(generate)
