"""Options that several commands share."""

import os
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

import typer

from cluster.url_secrets import hidden


def _set_home(value: Path | None) -> Path | None:
    """`--home` is the environment variable by another name, so that workers see it too."""
    if value is not None:
        os.environ["HEADRACE_HOME"] = str(value.expanduser().resolve())
    return value


def _without_passwords(values: list[str] | None) -> list[str] | None:
    """What is set names runs, and is shown with them."""
    return None if values is None else list(map(hidden, values))


RecipeName = Annotated[str, typer.Argument(help="a shipped recipe's name, or the path of a YAML")]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="override a key, e.g. model.depth=6",
        callback=_without_passwords,
    ),
]
Over = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=V,V", help="train a model for each value of any field instead; repeatable"
    ),
]
Seeds = Annotated[
    int | None,
    typer.Option(min=1, help="with --over: seeds of each variant, the same in all; 5 tell best"),
]
OneAtATime = Annotated[
    bool,
    typer.Option("--one-at-a-time", help="the recipe as it is, and each value of --over alone"),
]
Rebuild = Annotated[
    list[str] | None,
    typer.Option("--rebuild", metavar="STAGE", help="build this stage again even if cached"),
]
Hours = Annotated[
    float | None,
    typer.Option(min=0, help="run: end after so long; plan: size it to this"),
]
Usd = Annotated[
    float | None, typer.Option(min=0, help="the same in USD, by placement.usd_per_hour")
]
Inspect = Annotated[
    bool, typer.Option("--inspect", help="show samples of what each stage removed, beside kept")
]
Metric = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="print one JSON line with this metric of the run, for experiments"
    ),
]
Day = Annotated[
    datetime | None,
    typer.Option(
        "--date",
        formats=["%Y-%m-%d"],
        help="the day that {date} in the sources' paths stands for; default today (UTC)",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON object on stdout")]
Home = Annotated[
    Path | None,
    typer.Option(
        "--home",
        metavar="DIR",
        help="folder of all state; default $HEADRACE_HOME or ~/.headrace",
        callback=_set_home,
        is_eager=True,
    ),
]
Encoder = Annotated[
    Path | None, typer.Option(help="model folder, for what compares meanings: bertscore, nli")
]
Layer = Annotated[int | None, typer.Option(min=1, help="of the encoder; default last")]
Columns = Annotated[
    str | None,
    typer.Option(
        metavar="OURS=THEIRS,...",
        help="fields that have other names in the file: prediction=output,reference=gold",
    ),
]
Header = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,...",
        help="the columns of a table whose first line is a row already: id,prediction,reference",
    ),
]
NoQuotes = Annotated[
    bool, typer.Option("--no-quotes", help="quotes in a table are part of its texts")
]
FailUnder = Annotated[
    str | None,
    typer.Option(
        metavar="NAME=LIMIT,...",
        help="exit with 1 where a value is below its limit; above it where lower is better (ter,"
        " bits_per_byte, perplexity)",
    ),
]
ScoredRows = Annotated[
    Path | None, typer.Option(help="write the rows with their scores, for `headrace agree`")
]
Contamination = Annotated[
    Path | None, typer.Option(help="a `decontaminate` artifact: clean and dirty rows apart, too")
]
Concurrency = Annotated[int, typer.Option(min=1, help="requests at a time, at most")]
ArtifactName = Annotated[
    str, typer.Argument(help="stage/folder, a stage's name, or a fingerprint's beginning")
]
RunName = Annotated[
    str,
    typer.Argument(metavar="RUN", help="a run's id, its beginning, or its recipe's name"),
]
Precision = Annotated[
    Literal["fp32", "fp16", "bf16"],
    typer.Option(
        help="half the memory, rounded scores; less time: fp16 on a CPU, bf16 where a device "
        "multiplies it"
    ),
]
