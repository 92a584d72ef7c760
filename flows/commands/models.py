"""generate, fit, score, judge, agree: single steps as tools of their own, on any file or model."""

from pathlib import Path
from typing import Annotated

import typer

from cluster.errors import BadInput
from flows.commands.options import AsJson, Home
from flows.output import output


def generate(
    model: Annotated[str, typer.Argument(help="a model folder or an artifact's name")],
    prompt: Annotated[str, typer.Option(help="text to continue, or to answer with --chat")],
    decoding: Annotated[str, typer.Option(help="greedy, sample, beam or mbr")] = "greedy",
    temperature: Annotated[float, typer.Option(min=0.0, help="of sampling")] = 1.0,
    top_k: Annotated[int | None, typer.Option(min=1, help="sample from the k likeliest")] = None,
    top_p: Annotated[float, typer.Option(min=0.0, max=1.0, help="probability mass kept")] = 1.0,
    num_beams: Annotated[int, typer.Option(min=1, help="beams, or samples of mbr")] = 4,
    max_tokens: Annotated[int, typer.Option(min=1, help="tokens to generate at most")] = 64,
    seed: Annotated[int, typer.Option(help="of sampling")] = 0,
    chat: Annotated[bool, typer.Option("--chat", help="wrap the prompt as a user's turn")] = False,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Continue a prompt with a trained model."""
    from tasks.tuning.generation import GenerationSettings, generate_text

    with output(as_json) as out:
        settings = GenerationSettings(
            decoding=decoding,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            num_beams=num_beams,
            max_tokens=max_tokens,
            seed=seed,
            chat=chat,
        )
        result = generate_text(model_folder(model), prompt, settings)
        out.result(result)
        out.say(result["text"])


def model_folder(name: str) -> Path:
    """The folder of a model: a path, or an artifact of the store."""
    if Path(name).is_dir():
        return Path(name)
    from cluster.store import Store

    return Store().get(name).path


def fit(
    runs: Annotated[Path, typer.Argument(help="CSV with params,tokens,loss (see --form)")],
    form: Annotated[
        str, typer.Option(help="chinchilla, kaplan, isoflop, power, repeated or tied")
    ] = "chinchilla",
    loss: Annotated[str, typer.Option(help="huber or lad")] = "huber",
    delta: Annotated[float, typer.Option(min=1e-9, help="of the Huber loss")] = 1e-3,
    bootstrap: Annotated[int, typer.Option(min=0, help="resamples for standard errors")] = 0,
    predict: Annotated[
        str | None, typer.Option(metavar="PARAMS,TOKENS", help="predict the loss of this run")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fit a scaling law to runs from anywhere."""
    from tasks.scaling.fit import fit_file

    with output(as_json) as out:
        result = fit_file(runs, form, loss, delta, bootstrap, _pair(predict))
        out.result(result)
        rows = ((key, value) for key, value in result.items() if key != "warnings")
        out.table(("key", "value"), rows)
        for warning in result["warnings"]:
            out.say(f"warning: {warning}")


def _pair(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        params, tokens = (float(part) for part in text.split(","))
    except ValueError:
        raise BadInput(f"--predict {text}: write two numbers, e.g. 70e9,1.4e12") from None
    return params, tokens


def score(
    file: Annotated[Path, typer.Argument(help='JSON lines {"prediction","references":[..]}')],
    metrics: Annotated[str, typer.Option(help="comma-separated names")] = "bleu,rouge1,rougeL",
    stem: Annotated[bool, typer.Option("--stem", help="compare word stems in ROUGE")] = False,
    as_json: AsJson = False,
) -> None:
    """Overlap scores of predictions against references."""
    from tasks.scoring.overlap import score_file

    with output(as_json) as out:
        result = score_file(file, [m.strip() for m in metrics.split(",")], stem)
        out.result(result)
        out.table(("metric", "corpus"), result["corpus"].items())


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    for command in (generate, fit, score):
        app.command()(command)
