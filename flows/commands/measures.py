"""fit, judge, agree: measuring as tools of their own, on anybody's files."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from cluster.errors import BadInput, StageFailed
from flows.commands.options import (
    AsJson,
    Columns,
    Concurrency,
    Encoder,
    Header,
    Home,
    Layer,
    NoQuotes,
    ScoredRows,
)
from flows.views.judged import judged_lines, unscored
from flows.views.law import show_fit
from flows.views.output import Output, output
from flows.views.scores import show_agreement


def fit(
    runs: Annotated[
        str,
        typer.Argument(
            help="a table with a header (comma, semicolon, tab) or JSON lines: params, "
            "tokens, loss; for repeated also unique_tokens, for kaplan and isoflop optionally "
            "flops, for power x, y and optionally weight. Or mlflow:EXPERIMENT"
        ),
    ],
    form: Annotated[
        str, typer.Option(help="chinchilla, kaplan, isoflop, power, repeated or tied")
    ] = "chinchilla",
    loss: Annotated[
        str | None, typer.Option(help="huber, lad or squares; default huber, of tied squares")
    ] = None,
    delta: Annotated[float | None, typer.Option(min=1e-9, help="of Huber; default 1e-3")] = None,
    bootstrap: Annotated[int, typer.Option(min=0, help="resamples for standard errors")] = 0,
    predict: Annotated[
        list[str] | None,
        typer.Option(metavar="PARAMS,TOKENS", help="predict the loss of this run; repeatable"),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="OURS=THEIRS,...", help="columns that have other names: params=n,tokens=d"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fit a scaling law to runs from anywhere."""
    from tasks.data.row_files import read_columns
    from tasks.scaling.law.fit_file import fit_file
    from tasks.scaling.law.runs import NAMES

    with output(as_json) as out:
        places = [_numbers("--predict", text) for text in predict or ()]
        named = read_columns(columns, NAMES)
        result = fit_file(runs, form, loss, delta, bootstrap, places, named)
        out.result(result)
        show_fit(out, result)


def judge(
    file: Annotated[
        Path,
        typer.Argument(
            help="JSON lines or CSV: input, prediction and, where there are any, id, reference,"
            " context, document, other (for pairwise), system, other_system, samples (for"
            " selfcheck), replies (a judge's, given elsewhere: none is asked)"
        ),
    ],
    judge_url: Annotated[str | None, typer.Option(help="an OpenAI-compatible endpoint")] = None,
    judge_model: Annotated[str | None, typer.Option(help="the judge's name there")] = None,
    metric: Annotated[
        str, typer.Option(help="geval, qag, summary, selfcheck, prometheus or pairwise")
    ] = "geval",
    criteria: Annotated[
        str, typer.Option(help="a shipped name, a question in words, or a .yaml file")
    ] = "correctness",
    variant: Annotated[
        str, typer.Option(help="selfcheck: prompt, nli, bertscore, ngram; prometheus: relative")
    ] = "prompt",
    steps: Annotated[Path | None, typer.Option(help="a file, one step a line")] = None,
    rubric: Annotated[Path | None, typer.Option(help="Prometheus's, as JSON")] = None,
    scale: Annotated[
        str | None, typer.Option(help="lowest and highest rating; default the criterion's, or 1-5")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="a reason behind each rating")] = False,
    reading: Annotated[
        Literal["allowed", "published"],
        typer.Option(help="of stored replies; published: off the scale too, 0 where unreadable"),
    ] = "allowed",
    questions: Annotated[
        int, typer.Option(min=1, help="of qag and summary: questions on each text")
    ] = 3,
    samples: Annotated[int, typer.Option(min=1, help="replies where p is unknown")] = 1,
    concurrency: Concurrency = 16,
    max_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="of a reply, thoughts included; default what a question needs"),
    ] = None,
    deadline: Annotated[float, typer.Option(min=0.1, help="seconds for one request")] = 120.0,
    repeats: Annotated[int, typer.Option(min=0, help="more tries where no answer is read")] = 5,
    prices: Annotated[
        str | None, typer.Option(metavar="IN,OUT[,CACHED]", help="USD per million tokens")
    ] = None,
    columns: Columns = None,
    header: Header = None,
    no_quotes: NoQuotes = False,
    fail_under: Annotated[
        float | None, typer.Option(help="end with exit status 1 where the mean is lower")
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            min=0, help="USD for this file, metric and judge, over all runs; needs --prices"
        ),
    ] = None,
    to: ScoredRows = None,
    encoder: Encoder = None,
    layer: Layer = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Scores by a language model, resumable; a failed reply is unscored, never 0."""
    from cluster.store import Store
    from tasks.data.row_files import read_layout
    from tasks.evaluation.judging.endpoint import Endpoint
    from tasks.evaluation.judging.files import Assignment, judge_file
    from tasks.evaluation.judging.geval import parse_scale
    from tasks.evaluation.judging.rows import row_columns

    with output(as_json) as out:
        work = Assignment(
            metric=metric, criterion=criteria, variant=variant, steps=steps, rubric=rubric,
            scale=None if scale is None else parse_scale(scale), explain=explain, reading=reading,
            questions=questions, encoder=encoder, layer=layer,
        )  # fmt: skip
        endpoint = None
        if judge_url and judge_model:
            endpoint = Endpoint(
                judge_url, judge_model, samples, concurrency=concurrency, deadline=deadline,
                repeats=repeats, prices=_prices(prices), budget=budget, max_tokens=max_tokens,
            )  # fmt: skip
        layout = read_layout(row_columns(columns), header, not no_quotes)
        result = judge_file(file, work, endpoint, to, Store(), layout)
        _show_judged(out, result, file, fail_under)


def _show_judged(out: Output, result: dict[str, Any], file: Path, least: float | None) -> None:
    """Show what was found. Raises StageFailed where no row was scored, or the mean is too low."""
    out.result(result)
    for line in judged_lines(result):
        out.say(line)
    if result["rows"] and not result["scored"]:
        raise StageFailed(f"no row of {file} was scored: {unscored(result)}")
    if least is not None and result["mean"] < least:
        raise StageFailed(f"{result['metric']} is {result['mean']:.4f}, under {least:g}")


def agree(
    file: Annotated[
        Path,
        typer.Argument(
            help="JSON lines or CSV (comma, semicolon, tab) with two numbers, score (see --score)"
            " and the human rating (--human); a row without one (null, empty) is unscored"
        ),
    ],
    human: Annotated[str, typer.Option(help="the field of the human rating")],
    columns: Columns = None,
    header: Header = None,
    no_quotes: NoQuotes = False,
    field: Annotated[str, typer.Option("--score", help="the field of the score")] = "score",
    group: Annotated[str | None, typer.Option(help="correlate within groups of this field")] = None,
    calibration: Annotated[
        Literal["linear", "isotonic"] | None, typer.Option(help="fit the scores to the ratings")
    ] = None,
    text: Annotated[
        str | None, typer.Option(help="the field of the answer: audit the score for its length")
    ] = None,
    own: Annotated[
        str | None, typer.Option(help="true for answers of the judge's family: audit preference")
    ] = None,
    raters: Annotated[
        str | None,
        typer.Option(help="fields of several judges, or one with a list of repeats: alpha"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """How scores agree with people: Pearson, Spearman and Kendall, with their intervals."""
    from tasks.data.row_files import read_columns, read_layout
    from tasks.evaluation.statistics.agreement import agree_file

    with output(as_json) as out:
        names = tuple(filter(None, (raters or "").split(",")))
        known = [*filter(None, (field, human, group, text, own)), *names]
        layout = read_layout(read_columns(columns, known), header, not no_quotes)
        result = agree_file(file, human, field, group, calibration, text, own, names, layout)
        out.result(result)
        show_agreement(out, result)


def _prices(text: str | None) -> tuple[float, ...] | None:
    if text is None:
        return None
    found = _numbers("--prices", text)
    if len(found) not in (2, 3):
        raise BadInput(f"--prices {text}: write two or three numbers, in, out and cached, 0.5,1.5")
    return found


def _numbers(flag: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise BadInput(f"{flag} {text}: write numbers with commas, e.g. 70e9,1.4e12") from None
