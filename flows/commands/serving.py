"""serve: a model behind OpenAI's HTTP interface, with a page to talk to it."""

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.commands.options import AsJson, Home
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
    timeout: Annotated[float, typer.Option(min=0.1, help="seconds an answer may take")] = 600.0,
    body_bytes: Annotated[int, typer.Option(min=1, help="of a request at most")] = 4 << 20,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Serve a model: completions, chat, models; health, readiness, metrics; a chat page at /.

    Clients of OpenAI's interface take http://HOST:PORT/v1 as their base URL. Where HEADRACE_API_KEY
    is set, they have to send it.
    """
    from model.generation.engine import Capacity
    from tasks.serving.app import Limits
    from tasks.serving.run import listening, run
    from tasks.serving.service import Service

    with ExitStack() as stack:
        with output(as_json) as out:
            folder = _folder(model)
            capacity = Capacity(rows=rows, waiting=queue, chunk=chunk, tokens=cache_tokens)
            socket = stack.enter_context(listening(host, port))
            with waiting(f"loading {model}"):
                service = Service(folder, name or model, capacity, _facts(folder))
            url = f"http://{host}:{socket.getsockname()[1]}"
            out.result({"url": url, "model": service.name})
            out.say(f"{service.name} answers at {url}/v1, and on a page at {url}; Ctrl-C stops it")
        run(service, socket, Limits(body_bytes, timeout))


def _folder(model: str) -> Path:
    from cluster.store import Store

    return Path(model) if Path(model).is_dir() else Store().get(model).path


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


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    app.command()(serve)
