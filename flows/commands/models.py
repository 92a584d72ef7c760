"""generate: text from a model. adapt: tune one that exists."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from flows.commands.carrying_out import carry_out
from flows.commands.options import AsJson, Home, Metric, Overrides, Precision, Rebuild
from flows.views.output import Output, output

if TYPE_CHECKING:
    from flows.recipe import Recipe


def generate(
    model: Annotated[str, typer.Argument(help="a model folder or an artifact's name")],
    prompt: Annotated[str, typer.Option(help="text to continue, or to answer with --chat")],
    decoding: Annotated[
        Literal["greedy", "sample", "beam", "mbr"], typer.Option(help="mbr: minimum Bayes risk")
    ] = "greedy",
    temperature: Annotated[float, typer.Option(min=0.0, help="of sampling")] = 1.0,
    top_k: Annotated[int | None, typer.Option(min=1, help="sample from the k likeliest")] = None,
    top_p: Annotated[float, typer.Option(min=1e-9, max=1.0, help="probability mass kept")] = 1.0,
    min_p: Annotated[
        float | None, typer.Option(min=1e-9, max=1.0, help="least share of the likeliest's")
    ] = None,
    num_beams: Annotated[int, typer.Option(min=1, help="beams, or samples of mbr")] = 8,
    length_penalty: Annotated[
        float, typer.Option(help="of beams: score / ((5 + tokens) / 6)^this")
    ] = 0.0,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="tokens to generate at most [64, or what has room]")
    ] = None,
    stop: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="end before this text; repeatable")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="of sampling")] = 0,
    shots: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSON lines {instruction, response} to show")
    ] = None,
    logprobs: Annotated[
        bool, typer.Option("--logprobs", help="each token's log-probability, in nats")
    ] = False,
    top_logprobs: Annotated[
        int, typer.Option(min=0, help="each step's likeliest tokens too, in --json")
    ] = 0,
    chat: Annotated[bool, typer.Option("--chat", help="wrap the prompt as a user's turn")] = False,
    compiled: Annotated[
        bool, typer.Option("--compile", help="for long texts: slow to start, faster from then on")
    ] = False,
    precision: Precision = "fp32",
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Continue a prompt with a trained model."""
    from cluster.store import Store
    from tasks.inference.generation import GenerationSettings, generate_text
    from tasks.tuning.rows import read_shots

    with output(as_json) as out:
        settings = GenerationSettings(
            decoding=decoding, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p,
            num_beams=num_beams, length_penalty=length_penalty, samples=max(2, num_beams),
            max_tokens=max_tokens, stop=stop or [], seed=seed, chat=chat,
            top_logprobs=top_logprobs, compile=compiled, precision=precision,
        )  # fmt: skip
        folder = Store().path_of(model)
        examples = read_shots(shots) if shots else []
        result = generate_text(folder, prompt, settings, examples, None if as_json else _print)
        told = result if logprobs else {k: v for k, v in result.items() if k != "logprobs"}
        out.result(told)
        out.say("")
        if logprobs:
            rows = zip(told["tokens"], told["logprobs"], strict=True)
            out.table(("token", "log-probability"), ((id_, f"{x:.4f}") for id_, x in rows))


def _print(piece: str) -> None:
    """A piece of text as it comes."""
    typer.echo(piece, nl=False)


def adapt(
    model: Annotated[str, typer.Argument(help="a model folder, hf://org/name, an artifact's name")],
    task: Annotated[
        str, typer.Option(metavar="TASK", help="pretrain goes on training; or a tuning section")
    ],
    data: Annotated[str, typer.Option(metavar="PATH", help="rows to tune on; or a text source")],
    teacher: Annotated[
        str | None, typer.Option(metavar="MODEL", help="of distillation: the model to learn from")
    ] = None,
    show_targets: Annotated[
        bool,
        typer.Option("--show-targets", help="print what would be taught of some rows, and end"),
    ] = False,
    seeds: Annotated[
        int, typer.Option(min=1, help="tune so often, and tell mean and range of each figure")
    ] = 1,
    overrides: Overrides = None,
    rebuild: Rebuild = None,
    metric: Metric = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Go on from a model that exists, or tune it; --set takes a recipe's keys.

    headrace adapt hf://org/name --task instruct --data chats.jsonl --set instruct.tokens=2_000_000
    headrace adapt pretrain --task classify --data rows.jsonl --set classify.label=topic
    """
    from flows.adapting import adaptation

    made = partial(adaptation, model, task, data, teacher, overrides or (), seeds)
    if show_targets:
        _show_targets(made(), task, as_json)
        return
    told = partial(_adapted, task)
    goal = "sweep" if seeds > 1 else "all"
    carry_out(
        goal, made, overrides, rebuild, as_json, metric=metric, result_of=told, shown=show_adapted
    )


def _show_targets(recipe: "Recipe", task: str, as_json: bool) -> None:
    """Print what would be taught, what is taught between brackets."""
    from tasks.tokens.origins import folder_of
    from tasks.tuning.targets import shown_targets

    with output(as_json) as out:
        assert recipe.model.origin is not None, "adapt starts from a model"
        shown = shown_targets(folder_of(recipe.model.origin), getattr(recipe, task))
        out.result({"targets": shown})
        for text in shown:
            out.say(text)


def _adapted(task: str, record: dict[str, Any]) -> dict[str, Any]:
    """Where the tuned model lies, of several seeds that of the first, and its figures."""
    from cluster.artifact import Artifact

    made = [s["artifact"] for s in record["stages"] if s["stage"] == task and s["artifact"]]
    if not made:  # it failed, which is told at the end
        return {"artifact": None, "metrics": {}}
    artifact = Artifact.load(Path(made[0]))
    return {"artifact": str(artifact.path), "metrics": artifact.manifest.metrics}


def show_adapted(out: Output, result: dict[str, Any]) -> None:
    """Its figures, of several seeds those of the comparison above, and last its folder."""
    from flows.views.manifest import show_metrics

    if "variants" not in result:
        show_metrics(out, result["metrics"])
    if result["artifact"]:
        out.say(f"\nmodel    {result['artifact']}")


def embed(
    model: Annotated[str, typer.Argument(help="a model folder or an artifact's name")],
    rows: Annotated[Path, typer.Argument(help="JSON lines or CSV")],
    to: Annotated[Path, typer.Option(help="a .parquet file: id, vector; with --centroids sense")],
    layers: Annotated[
        str, typer.Option(help="last: the last layer; last4: the mean of the last four")
    ] = "last4",
    text: Annotated[str, typer.Option(help="the field of the text")] = "text",
    target: Annotated[
        str | None,
        typer.Option(
            help="embed a word of the text: the field with the word, or with the first of its"
            " characters and the one behind it; default the whole text"
        ),
    ] = None,
    centroids: Annotated[
        Path | None,
        typer.Option(help="rows whose senses are known: tells the nearest for each of ROWS"),
    ] = None,
    sense: Annotated[str, typer.Option(help="the field of a row's sense, or class")] = "sense",
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Contextual embeddings of texts or of words in them; word senses by nearest centroid.

    headrace embed pretrain rows.jsonl --to vectors.parquet
    headrace embed pretrain test.jsonl --to senses.parquet --target word --centroids train.jsonl
    """
    from cluster.store import Store
    from tasks.evaluation.embedding.contextual import Fields, embed_file

    with output(as_json) as out:
        folder = Store().path_of(model)
        result = embed_file(folder, rows, to, Fields(text, target, sense), layers, centroids)
        out.result(result)
        for name, value in result.items():
            out.say(f"{name:28} {value:.4f}" if isinstance(value, float) else f"{name:28} {value}")


def attention(
    model: Annotated[str, typer.Argument(help="a model folder or an artifact's name")],
    text: Annotated[str, typer.Option(help="what it reads")],
    target: Annotated[
        str | None, typer.Option(metavar="TEXT", help="what an encoder-decoder writes beside it")
    ] = None,
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="draw the maps of all heads, as HTML")
    ] = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """What each token of a text looks at, by layer and head.

    headrace attention pretrain --text "def main(argv):" --to attention.html
    """
    from cluster.store import Store
    from tasks.inference.attention import attention_of

    with output(as_json) as out:
        folder = Store().path_of(model)
        maps = attention_of(folder, text, target)
        patterns = [row for one in maps for row in one.patterns()]
        result: dict[str, Any] = {"tokens": maps[0].columns, "patterns": patterns}
        if to:
            from tasks.report.attention import attention_page

            to.write_text(attention_page(maps), encoding="utf-8")
            result["path"] = str(to)
        out.result(result)
        names = ("map", "head", "first", "previous", "itself", "next", "entropy")
        shown = [
            [v if not isinstance(v, float) else f"{v:.3f}" for v in row.values()]
            for row in patterns
        ]
        out.table(names, shown)
