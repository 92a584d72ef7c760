"""serve: a model behind OpenAI's HTTP interface, with a page to talk to it. infer: answers to the
rows of a file.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from cluster.errors import BadInput, StageFailed
from flows.commands.options import AsJson, Home, Precision
from flows.views.output import output, waiting


def serve(
    model: Annotated[str, typer.Argument(help="a model folder or an artifact's name")],
    host: Annotated[str, typer.Option(help="address to listen at; 0.0.0.0 is all of them")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one")] = 8000,
    name: Annotated[str | None, typer.Option(help="what clients call the model")] = None,
    rows: Annotated[int, typer.Option(min=1, help="requests answered at a time")] = 64,
    queue: Annotated[int, typer.Option(min=1, help="that wait; others get 429")] = 1024,
    chunk: Annotated[int, typer.Option(min=1, help="prompt tokens read in a step")] = 256,
    cache_tokens: Annotated[
        int, typer.Option(min=1, help="tokens that the key-value caches have room for")
    ] = 131_072,
    packing: Annotated[
        bool,
        typer.Option(
            help="keep matrices a second time in memory, laid out for a few rows, and in fp16 to "
            "guess with: on a CPU, 1 to 64 rows take less time"
        ),
    ] = True,
    precision: Precision = "fp32",
    timeout: Annotated[float, typer.Option(min=0.1, help="seconds an answer may take")] = 600.0,
    body_bytes: Annotated[int, typer.Option(min=1, help="of a request at most")] = 4 << 20,
    replicas: Annotated[
        int | None,
        typer.Option(min=1, help="so many by Ray Serve, here or on the cluster of RAY_ADDRESS"),
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads of each replica")] = 1,
    gpus: Annotated[int, typer.Option(min=0, help="of each replica")] = 0,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Serve a model: completions, chat, models; health, readiness, metrics; a chat page at /.

    Clients of OpenAI's interface take http://HOST:PORT/v1 as their base URL. Where HEADRACE_API_KEY
    is set, they have to send it.
    """
    from cluster.store import Store
    from model.generation.engine import Capacity
    from tasks.serving.app import Limits
    from tasks.serving.run import listening, run
    from tasks.serving.service import Service

    capacity = Capacity(rows=rows, waiting=queue, chunk=chunk, tokens=cache_tokens, packing=packing)
    limits = Limits(body_bytes, timeout)
    with ExitStack() as stack:
        with output(as_json) as out:
            folder = Store().path_of(model)
            called = name or model
            if replicas:
                _join_ray()
                about = (called, capacity, limits, _facts(folder), precision, threads, gpus)
                url = stack.enter_context(_replicated(folder, replicas, host, port, *about))
                then = _until_stopped
            else:
                socket = stack.enter_context(listening(host, port))
                with waiting(f"loading {model}"):
                    service = Service(folder, called, capacity, _facts(folder), precision)
                url = f"http://{host}:{socket.getsockname()[1]}"
                then = partial(run, service, socket, limits)
            out.result({"url": url, "model": called})
            out.say(f"{called} answers at {url}/v1, and on a page at {url}; Ctrl-C stops it")
        then()


@contextmanager
def _replicated(folder: Path, replicas: int, host: str, port: int, *about: Any) -> Iterator[str]:
    """The URL of replicas; the model is offered to all nodes, where it is an artifact."""
    from cluster.store import Store
    from tasks.serving.replicas import Plan, deployed
    from tasks.serving.run import KEY
    from tasks.tokens.origins import known_artifact

    if artifact := known_artifact(folder):
        store = Store()
        folder = store.open(store.offer(artifact)).path
    plan = Plan(folder.absolute(), *about, key=os.environ.get(KEY) or None)
    with ExitStack() as stack:
        with waiting(f"starting {replicas} replicas"):
            url = stack.enter_context(deployed(plan, replicas, host, port))
        yield url


def _until_stopped() -> None:
    """Until Ctrl-C or SIGTERM. Raises StageFailed when the local Ray session has died."""
    from cluster import ray_session

    while not ray_session.died():
        time.sleep(1)
    raise StageFailed("Ray's daemon died, and the replicas with it; start the command again")


def _facts(folder: Path) -> dict[str, str]:
    """What is known of a model, for those who talk to it: of an artifact its lineage."""
    from cluster.manifest import MANIFEST
    from flows.views.inspection import lineage_of

    found: dict[str, Any] = {"folder": str(folder)}
    if (folder / MANIFEST).is_file():
        nodes = lineage_of(str(folder))["nodes"]
        made = [node["id"] for node in nodes if node["kind"] not in ("file", "source")]
        sources = [node["id"] for node in nodes if node["kind"] == "source"]
        licenses = {node["license"] for node in nodes if node.get("license")}
        found |= {"made from": ", ".join(made[1:]), "text": ", ".join(sources)}
        found |= {"licences": ", ".join(sorted(licenses))}
    return {key: value for key, value in found.items() if value}


def infer(
    model: Annotated[str, typer.Argument(help="an artifact's name, a model folder, hf://org/name")],
    rows: Annotated[Path, typer.Argument(help="JSON lines or CSV, plain or compressed")],
    to: Annotated[Path, typer.Option(metavar="FILE", help="answers, as JSON lines")],
    rejects: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="rows without an answer; default beside --to"),
    ] = None,
    field: Annotated[
        str | None,
        typer.Option(help="what is asked, a text or messages; else messages, prompt or text"),
    ] = None,
    chat: Annotated[bool, typer.Option("--chat", help="put a text as a user's turn")] = False,
    temperature: Annotated[
        float, typer.Option(min=0.0, max=100.0, help="of sampling; 0 takes the likeliest token")
    ] = 0.0,
    top_k: Annotated[int | None, typer.Option(min=1, help="sample from the k likeliest")] = None,
    top_p: Annotated[float, typer.Option(min=1e-9, max=1.0, help="probability mass kept")] = 1.0,
    min_p: Annotated[
        float | None, typer.Option(min=1e-9, max=1.0, help="least share of the likeliest's")
    ] = None,
    repetition_penalty: Annotated[
        float, typer.Option(min=1e-9, max=100.0, help="of tokens that occurred; 1 is none")
    ] = 1.0,
    presence_penalty: Annotated[
        float, typer.Option(min=-2, max=2, help="of tokens that were written")
    ] = 0.0,
    frequency_penalty: Annotated[
        float, typer.Option(min=-2, max=2, help="of them, for each time")
    ] = 0.0,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="of an answer at most [64, or what has room]")
    ] = None,
    stop: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="end before this text; repeatable")
    ] = None,
    response_format: Annotated[
        str | None,
        typer.Option(metavar="JSON", help='of every answer, as in OpenAI\'s API: {"type": ...}'),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="of sampling; row n draws by seed + n")] = 0,
    concurrency: Annotated[int, typer.Option(min=1, help="rows at a time, by each worker")] = 64,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="processes [1; on a cluster as many as there is room for]"),
    ] = None,
    gpus: Annotated[int, typer.Option(min=0, help="of each worker on a cluster")] = 0,
    max_failed: Annotated[
        float, typer.Option(min=0, max=1, help="share of rows without an answer that is accepted")
    ] = 1.0,
    precision: Precision = "fp32",
    rebuild: Annotated[bool, typer.Option("--rebuild", help="ask again what was asked")] = False,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Answer every row of a file: in this process, or with RAY_ADDRESS on that cluster.

    headrace infer instruct questions.jsonl --to answers.jsonl --field question --chat

    Each row comes back with `prediction`, `ended` (stop or length) and `tokens`; one that cannot be
    answered is in the rejects, with its line and the reason. Killed, the same command goes on and
    asks no finished row again.
    """
    from cluster.placement import Placement
    from cluster.store import Store
    from flows.views.progress import follow
    from tasks.serving.batch.files import infer_file
    from tasks.serving.batch.settings import InferSettings

    with output(as_json) as out:
        settings = InferSettings(
            data=str(rows), field=field, chat=chat, temperature=temperature, top_k=top_k,
            top_p=top_p, min_p=min_p, repetition_penalty=repetition_penalty,
            presence_penalty=presence_penalty, frequency_penalty=frequency_penalty,
            max_tokens=max_tokens, stop=tuple(stop or ()), response_format=_form(response_format),
            max_failed=max_failed, concurrency=concurrency, precision=precision,
        )  # fmt: skip
        placement = Placement(data_workers=workers, gpus=gpus)
        if os.environ.get("RAY_ADDRESS") or (workers or 1) > 1:
            _join_ray()
        put_aside = rejects or to.with_name(f"{to.name.split('.')[0]}.rejects.jsonl")
        with follow("infer") as told:
            result = infer_file(
                Store(), model, settings, seed, to, put_aside, placement, rebuild, told
            )
        out.result(result)
        failed = ", ".join(f"{reason} {n}" for reason, n in result["failed"].items())
        out.say(f"{result['written']:,} of {result['rows']:,} rows are answered in {to}")
        if failed:
            out.say(f"without an answer, in {put_aside}: {failed}")
        out.say(f"{result['tokens']:,} tokens; asked {result['asked']:,}, kept from before "
                f"{result['reused']:,}")  # fmt: skip


def _form(text: str | None) -> dict[str, Any] | None:
    try:
        found = json.loads(text) if text else None
    except ValueError as error:
        raise BadInput(f"--response-format is not JSON: {error}") from error
    if found is not None and not isinstance(found, dict):
        raise BadInput(f"--response-format {text}: it is a JSON object")
    return found


def _join_ray() -> None:
    from cluster.environment import prepare

    prepare()  # before Ray is imported, which reads its settings then
    from cluster import ray_session

    with waiting("joining Ray"):
        ray_session.start()
