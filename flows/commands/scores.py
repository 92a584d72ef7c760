"""score, learn, exam, leaderboard: predictions and models measured, and compared on one page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cluster.errors import BadInput, StageFailed
from cluster.files import write_atomically
from cluster.home import home as root
from flows.commands.options import (
    AsJson,
    Columns,
    Concurrency,
    Contamination,
    Encoder,
    FailUnder,
    Header,
    Home,
    Layer,
    NoQuotes,
    ScoredRows,
)
from flows.views.output import Output, estimate, output
from flows.views.scores import show_exam, show_learned, show_scores

if TYPE_CHECKING:
    from tasks.evaluation.exams.results import NamedCandidate
    from tasks.evaluation.thresholds import Limits

METRICS = (
    "names with commas: bleu, chrf, chrf++, rouge1 to rouge4, rougeL, rougeLsum, rougeW, rougeS, "
    "rougeSU4, meteor, ter, exact, bertscore, learned"
)


def score(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="of each system, JSON lines or CSV (comma, semicolon, tab) with prediction, and"
            " references (a list of texts) or reference; optional id, and the field of --group"
        ),
    ],
    columns: Columns = None,
    header: Header = None,
    no_quotes: NoQuotes = False,
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
    fail_under: FailUnder = None,
    as_json: AsJson = False,
) -> None:
    """Scores of predictions against references, with intervals and signatures.

    headrace score ours.jsonl --metrics bleu,ter --fail-under bleu=30,ter=60
    headrace score a.jsonl b.csv --columns prediction=output,reference=gold
    """
    from tasks.data.row_files import read_layout
    from tasks.evaluation.overlap.scores import LOWER_IS_BETTER, Manner, figure
    from tasks.evaluation.predictions import prediction_columns, score_files
    from tasks.evaluation.thresholds import check_names, missed, read_limits

    with output(as_json) as out:
        wanted = [name.strip() for name in metrics.split(",")]
        layout = read_layout(prediction_columns(columns), header, not no_quotes)
        limits = read_limits(fail_under)
        check_names(limits, wanted)
        manner = Manner(
            stem=stem, formula=formula, script=script, synonyms=synonyms, encoder=encoder,
            layer=layer, baseline=baseline, idf=idf, learned=learned, tokenize=tokenize,
            smooth=smooth, smooth_value=smooth_value, chrf_eps=chrf_eps,
        )  # fmt: skip
        result = score_files(files, wanted, manner, contamination, against, group, to, layout)
        late = []
        for system in result.get("systems", [result]):
            values = {name: figure(value) for name, value in system["corpus"].items()}
            where = system.get("file", str(files[0]))
            late += missed(values, limits, LOWER_IS_BETTER, where)
        out.result(result | ({"missed": late} if limits else {}))
        show_scores(out, result)
        _fail(late)


def learn(
    pairs: Annotated[
        Path,
        typer.Argument(
            help="JSON lines or CSV with ref, better and worse (texts); document, else src, else"
            " ref, names what is held out together"
        ),
    ],
    columns: Columns = None,
    header: Header = None,
    no_quotes: NoQuotes = False,
    to: Annotated[Path | None, typer.Option(help="write the metric to this file")] = None,
    seed: Annotated[int, typer.Option(min=0, help="of folds and damage")] = 0,
    as_json: AsJson = False,
) -> None:
    """Fit a metric to human choices; says its tau on held-out documents, beside chrF's."""
    from tasks.data.row_files import read_columns, read_layout
    from tasks.evaluation.learned import FIELDS, learn_file

    with output(as_json) as out:
        layout = read_layout(read_columns(columns, FIELDS), header, not no_quotes)
        result = learn_file(pairs, to, seed, layout)
        out.result(result)
        show_learned(out, result)


def exam(
    model: Annotated[
        str,
        typer.Argument(
            help="an artifact, a model folder, a folder of them, `all` of the store; with --url or"
            " --answers its name"
        ),
    ],
    files: Annotated[
        list[Path],
        typer.Argument(
            help="YAML files: name, kind, rows, prompt, ...; or tasks of lm-evaluation-harness,"
            " FOLDER/NAME being what is called so in its files"
        ),
    ],
    url: Annotated[
        str | None, typer.Option(help="an OpenAI-compatible endpoint that serves the model")
    ] = None,
    answers: Annotated[
        Path | None,
        typer.Option(help="its answers, given elsewhere: JSON lines or CSV with prediction and id"),
    ] = None,
    concurrency: Concurrency = 16,
    contamination: Contamination = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="ask again what was asked")] = False,
    fail_under: FailUnder = None,
    write_tasks: Annotated[
        Path | None,
        typer.Option(help="write the exams to this folder as tasks of lm-evaluation-harness, too"),
    ] = None,
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
    from tasks.evaluation.thresholds import check_names, read_limits

    with output(as_json) as out:
        limits = read_limits(fail_under)
        if cron is not None:
            if limits:
                raise BadInput("--fail-under ends this command; a schedule has none: leave out one")
            from flows.exams import deploy_exams

            result = deploy_exams(model, files, cron, url, concurrency, contamination)
            out.result(result)
            out.say(f"deployed {result['deployment']}, next run {result['next_run']}")
            return
        written = _written(files, write_tasks) if write_tasks else []
        who = named_candidates(Store(), model, url, answers)
        found, failed = _take_exams(out, who, files, concurrency, contamination, rebuild)
        if found:
            check_names(limits, {name for one in found for name in one["results"]})
        late = [miss for one in found for miss in _missed(one, limits)]
        result = found[0] if len(found) == 1 and not failed else {"exams": found} | failed
        result |= {"tasks": list(map(str, written))} if written else {}
        out.result(result | ({"missed": late} if limits else {}))
        if failed:
            raise StageFailed("; ".join(failed["failed"]))
        out.say(f"\nheadrace leaderboard shows them all; rows are in {Store().root}/artifacts/exam")
        _fail(late)


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
            show_exam(out, found[-1])
    return found, {"status": "failed", "failed": failed} if failed else {}


def _written(files: list[Path], folder: Path) -> list[Path]:
    """Exams of ours as tasks. Raises BadInput for a file that is one already."""
    from tasks.evaluation.exams.definition import Exam, read_exam
    from tasks.evaluation.exams.harness.writing import write_task

    paths = []
    for file in files:
        exam = read_exam(file)
        if not isinstance(exam, Exam):
            raise BadInput(f"--write-tasks {folder}: {file} is a task already")
        paths.append(write_task(exam, folder))
    return paths


def _missed(found: dict[str, Any], limits: "Limits") -> list[dict[str, Any]]:
    """The figures of one exam that are worse than their limits."""
    from tasks.evaluation.thresholds import missed

    values = {name: one["value"] for name, one in found["results"].items()}
    lower = values if found["better"] == "lower" else ()
    return missed(values, limits, lower, f"{found['exam']}, {found['model']}")


def _fail(late: list[dict[str, Any]]) -> None:
    """Raise StageFailed where some value missed its limit."""
    if late:
        raise StageFailed("; ".join(miss["why"] for miss in late))


def leaderboard(
    to: Annotated[
        Path | None, typer.Option(help="the page; default leaderboard.html in the home")
    ] = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Every model by every task it was measured on, with intervals, as one page of HTML."""
    from dataclasses import asdict

    from cluster.store import Store
    from tasks.report.leaderboard import entries, render

    with output(as_json) as out:
        page, found = to or root() / "leaderboard.html", entries(Store())
        write_atomically(page, render(found))
        out.result({"page": str(page), "entries": [asdict(one) for one in found]})
        rows = ((o.task, o.model, o.metric, estimate(o.value, o.interval), o.n) for o in found)
        out.table(("task", "model", "metric", "value", "n"), rows)
        out.say(f"\npage     {page}")
