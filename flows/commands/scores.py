"""score, learn, exam, leaderboard: predictions and models measured, and compared on one page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cluster.errors import BadInput, StageFailed
from flows.commands.options import (
    AsJson,
    Columns,
    Concurrency,
    Contamination,
    Encoder,
    Home,
    Layer,
    ScoredRows,
)
from flows.views.output import Output, output

if TYPE_CHECKING:
    from tasks.evaluation.exams.results import NamedCandidate

METRICS = (
    "names with commas: bleu, chrf, chrf++, rouge1 to rouge4, rougeL, rougeLsum, rougeW, rougeS, "
    "rougeSU4, meteor, exact, bertscore, learned"
)


def score(
    file: Annotated[
        Path,
        typer.Argument(
            help="JSON lines or CSV (comma, semicolon, tab) with prediction, and references (a list"
            " of texts) or reference; optional id, and the field of --group"
        ),
    ],
    columns: Columns = None,
    metrics: Annotated[str, typer.Option(help=METRICS)] = "bleu,rouge1,rougeL",
    stem: Annotated[bool, typer.Option("--stem", help="compare word stems in ROUGE")] = False,
    formula: Annotated[
        Literal["best", "A", "B"], typer.Option(help="of ROUGE with several references")
    ] = "best",
    script: Annotated[
        Literal["unicode", "ascii"], typer.Option(help="whose letters make ROUGE's words")
    ] = "unicode",
    synonyms: Annotated[
        bool, typer.Option("--synonyms", help="METEOR's WordNet stage, where installed")
    ] = False,
    encoder: Encoder = None,
    layer: Layer = None,
    baseline: Annotated[
        Path | None, typer.Option(help="LAYER,P,R,F lines that become 0 in bertscore")
    ] = None,
    idf: Annotated[bool, typer.Option("--idf", help="rare words weigh more in bertscore")] = False,
    learned: Annotated[Path | None, typer.Option(help="a metric of `headrace learn`")] = None,
    tokenize: Annotated[
        Literal["13a", "intl", "zh", "char", "none"], typer.Option(help="how BLEU finds words")
    ] = "13a",
    smooth: Annotated[
        Literal["exp", "floor", "add-k", "none"], typer.Option(help="of BLEU's n-gram precisions")
    ] = "exp",
    smooth_value: Annotated[float | None, typer.Option(help="of floor and add-k")] = None,
    chrf_eps: Annotated[
        bool, typer.Option("--chrf-eps", help="chrF with epsilon smoothing, as Moses and NLTK")
    ] = False,
    against: Annotated[
        Path | None, typer.Option(help="another system's rows: test the difference")
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="a field, e.g. the document: intervals draw whole groups")
    ] = None,
    to: ScoredRows = None,
    contamination: Contamination = None,
    as_json: AsJson = False,
) -> None:
    """Scores of predictions against references, with signatures."""
    from tasks.evaluation.overlap.scores import Manner
    from tasks.evaluation.predictions import prediction_columns, score_file

    with output(as_json) as out:
        wanted = [name.strip() for name in metrics.split(",")]
        names = prediction_columns(columns)
        manner = Manner(
            stem=stem, formula=formula, script=script, synonyms=synonyms, encoder=encoder,
            layer=layer, baseline=baseline, idf=idf, learned=learned, tokenize=tokenize,
            smooth=smooth, smooth_value=smooth_value, chrf_eps=chrf_eps,
        )  # fmt: skip
        result = score_file(file, wanted, manner, contamination, against, group, to, names)
        out.result(result)
        _show_scores(out, result)


def _show_scores(out: Output, result: dict[str, Any]) -> None:
    from tasks.evaluation.overlap.scores import figure

    parts = [part for part in ("clean", "dirty") if part in result]
    rows = (
        (
            name,
            f"{figure(value):.4f}",
            "{:.4f} to {:.4f}".format(*result["intervals"][name]),
            *(f"{figure(result[p]['corpus'][name]):.4f}" for p in parts if result[p]["rows"]),
            result["signatures"][name],
        )
        for name, value in result["corpus"].items()
    )
    split = [f"{part} ({result[part]['rows']})" for part in parts if result[part]["rows"]]
    out.table(("metric", "value", "95 % interval", *split, "signature"), rows)
    for name, test in result.get("difference", {}).items():
        low, high = test["interval"]
        out.say(f"{name}: {test['difference']:+.4f} [{low:+.4f}, {high:+.4f}], p {test['p']:.3f}")


def learn(
    pairs: Annotated[
        Path,
        typer.Argument(
            help="JSON lines or CSV with ref, better and worse (texts); document, else src, else"
            " ref, names what is held out together"
        ),
    ],
    columns: Columns = None,
    to: Annotated[Path | None, typer.Option(help="write the metric to this file")] = None,
    seed: Annotated[int, typer.Option(min=0, help="of folds and damage")] = 0,
    as_json: AsJson = False,
) -> None:
    """Fit a metric to human choices; says its tau on held-out documents, beside chrF's."""
    from tasks.data.json_files import read_columns
    from tasks.evaluation.learned import FIELDS, learn_file

    with output(as_json) as out:
        result = learn_file(pairs, to, seed, read_columns(columns, FIELDS))
        out.result(result)
        out.table(("key", "value"), result.items())


def exam(
    model: Annotated[
        str,
        typer.Argument(
            help="an artifact, a model folder, a folder of them, `all` of the store; with --url or"
            " --answers its name"
        ),
    ],
    files: Annotated[list[Path], typer.Argument(help="YAML files: name, kind, rows, prompt, ...")],
    url: Annotated[
        str | None, typer.Option(help="an OpenAI-compatible endpoint that serves the model")
    ] = None,
    answers: Annotated[
        Path | None, typer.Option(help="its answers, given elsewhere: JSON lines {id, prediction}")
    ] = None,
    concurrency: Concurrency = 16,
    contamination: Contamination = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="ask again what was asked")] = False,
    cron: Annotated[
        str | None, typer.Option(help='put new models to it on a schedule: "*/15 * * * *"')
    ] = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Put tasks defined in YAML to a model: choices, exact answers, code, overlap, bits per byte.

    kind: choice (rows have `choices`, `answer` its number), exact (`answers`), code (`tests`),
    overlap (`references`; metric: rougeL) or perplexity. prompt: "{field}" of the rows; shots: N of
    `examples`. What was answered already is not asked again. Where no --contamination is named,
    the model's own is looked for.
    """
    from cluster.store import Store
    from tasks.evaluation.exams.results import named_candidates

    with output(as_json) as out:
        if cron is not None:
            from flows.exams import deploy_exams

            result = deploy_exams(model, files, cron, url, concurrency, contamination)
            out.result(result)
            out.say(f"deployed {result['deployment']}, next run {result['next_run']}")
            return
        who = named_candidates(Store(), model, url, answers)
        found, failed = _take_exams(out, who, files, concurrency, contamination, rebuild)
        out.result(found[0] if len(found) == 1 and not failed else {"exams": found} | failed)
        if failed:
            raise StageFailed("; ".join(failed["failed"]))
        out.say(f"\nheadrace leaderboard shows them all; rows are in {Store().root}/artifacts/exam")


def _take_exams(
    out: Output,
    who: "list[NamedCandidate]",
    files: list[Path],
    concurrency: int,
    contamination: Path | None,
    rebuild: bool,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The results of every model and exam, and what failed where there are several."""
    from cluster.store import Store
    from tasks.evaluation.exams.results import shown, take_exam

    store, failed, found = Store(), list[str](), list[dict[str, Any]]()
    for candidate in who:
        for path in files:
            try:
                artifact, kept = take_exam(
                    store, candidate, path, concurrency, contamination, rebuild
                )
            except BadInput as error:
                if len(who) * len(files) == 1:
                    raise
                failed.append(f"{path.stem}, {candidate.name}: {error}")
                continue
            found.append(shown(artifact) | {"cached": kept})
            _show(out, found[-1])
    return found, {"status": "failed", "failed": failed} if failed else {}


def _show(out: Output, found: dict[str, Any]) -> None:
    unscored = f", {sum(found['unscored'].values())} unscored" if found["unscored"] else ""
    kept = ", as found before" if found["cached"] else ""
    out.say(f"\n{found['exam']}, {found['model']}{unscored}{kept}")
    rows = (
        (name, *_figure(one), one["n"], *_part(one, "clean"), *_part(one, "dirty"), one["baseline"])
        for name, one in found["results"].items()
    )
    columns = ("", "value", "95 % interval", "n", "clean", "", "dirty", "", "a guess")
    out.table(columns, rows)


def _part(one: dict[str, Any], name: str) -> tuple[str, str]:
    part = one.get(name) or {}
    return _figure(part) if part.get("n") else ("", "")


def _figure(one: dict[str, Any]) -> tuple[str, str]:
    ends = one["interval"]
    return f"{one['value']:.4f}", f"{ends[0]:.4f} to {ends[1]:.4f}" if ends else ""


def leaderboard(
    to: Annotated[
        Path | None, typer.Option(help="the page; default leaderboard.html in the home")
    ] = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Every model by every task it was measured on, with intervals, as one page of HTML."""
    from dataclasses import asdict

    from cluster.files import write_atomically
    from cluster.home import home as root
    from cluster.store import Store
    from tasks.report.leaderboard import entries, render

    with output(as_json) as out:
        page, found = to or root() / "leaderboard.html", entries(Store())
        write_atomically(page, render(found))
        out.result({"page": str(page), "entries": [asdict(one) for one in found]})
        rows = ((one.task, one.model, one.metric, *_figure(asdict(one)), one.n) for one in found)
        out.table(("task", "model", "metric", "value", "95 % interval", "n"), rows)
        out.say(f"\npage     {page}")


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    for command in (score, learn, exam, leaderboard):
        app.command()(command)
