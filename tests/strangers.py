"""What another user of the machine, or a page elsewhere, tries on the local services.

Each attack returns what it got, "" for nothing. It asks with the standard library alone, as a
process that was forked and has become another user.
"""

import json
import os
import secrets
import socket
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

NOBODY = 65534
EVIL = {"Host": "evil.example", "Origin": "http://evil.example"}


def as_stranger(attack: Callable[[], str]) -> str:
    """What an attack gets as another user; as this one, where this one may not become another."""
    if os.getuid() != 0:
        return attack()
    into, out = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os.write(out, attack().encode()[:4096])
        finally:
            os._exit(0)
    os.close(out)
    with os.fdopen(into) as answer:
        got = answer.read()
    os.waitpid(child, 0)
    return got


def ask(url: str, body: Any = None, kind: str = "application/json", **headers: str) -> str:
    """The answer to a GET, or to a POST of a body; "" where it is a refusal."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": kind, **headers})
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return str(reply.read().decode(errors="replace"))
    except urllib.error.HTTPError:
        return ""


def linked_run(mlflow: str, private: Path) -> str:
    """A run whose artifacts are a symbolic link to a private folder; its id."""
    base = Path(tempfile.mkdtemp())
    base.chmod(0o755)
    body = {"name": base.name, "artifact_location": f"file://{base}"}
    if not (made := ask(f"{mlflow}/api/2.0/mlflow/experiments/create", body)):
        return ""
    new = {"experiment_id": json.loads(made)["experiment_id"]}
    run = json.loads(ask(f"{mlflow}/api/2.0/mlflow/runs/create", new))["run"]["info"]["run_id"]
    (base / run).mkdir()
    (base / run / "artifacts").symlink_to(private)
    return str(run)


def read_a_file(prefect: str, mlflow: str, private: Path) -> str:
    run = linked_run(mlflow, private)
    return ask(f"{mlflow}/get-artifact?path=key&run_uuid={run}")


def write_a_file(prefect: str, mlflow: str, private: Path) -> str:
    run = linked_run(mlflow, private)
    upload = f"{mlflow}/ajax-api/2.0/mlflow/upload-artifact?run_uuid={run}&path=planted"
    return ask(upload, b"planted", "text/plain")


def read_a_secret(prefect: str, mlflow: str, private: Path) -> str:
    found = ask(f"{prefect}/api/block_documents/filter", {"include_secrets": True})
    return found if "a secret value" in found else ""


def run_a_command(prefect: str, mlflow: str, private: Path) -> str:
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    name = secrets.token_hex(4)
    if not (flow := ask(f"{prefect}/api/flows/", {"name": name})):
        return ""
    body = {
        "name": name,
        "flow_id": json.loads(flow)["id"],
        "work_pool_name": "headrace",
        "entrypoint": "x",
        "job_variables": {
            "command": f"bash -c 'id -u > {folder}/new; mv {folder}/new {folder}/got'"
        },
    }
    made = json.loads(ask(f"{prefect}/api/deployments/", body))["id"]
    began = {"state": {"type": "SCHEDULED"}}
    ask(f"{prefect}/api/deployments/{made}/create_flow_run", began)
    deadline = time.monotonic() + 120
    while not (folder / "got").exists() and time.monotonic() < deadline:
        time.sleep(0.3)
    return (folder / "got").read_text()


def follow_the_events(prefect: str, mlflow: str, private: Path) -> str:
    host = prefect.removeprefix("http://")
    lines = [
        "GET /api/events/out HTTP/1.1",
        f"Host: {host}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: c3RyYW5nZXIgaGVyZSEhIQ==",
        "Sec-WebSocket-Protocol: prefect",
    ]
    with socket.create_connection(("127.0.0.1", int(host.rsplit(":", 1)[1])), 60) as asking:
        asking.sendall("\r\n".join([*lines, "", ""]).encode())
        status = asking.recv(64).decode().split()[1]
    return status if status == "101" else ""


def look_from_elsewhere(prefect: str, mlflow: str, private: Path) -> str:
    return ask(f"{prefect}/api/flows/filter", {}, **EVIL)


def anything(prefect: str, mlflow: str, private: Path) -> str:
    """Whatever either answers: pages, health, each kind of interface, writes."""
    seen = [
        *(
            ask(prefect + path)
            for path in ("/", "/api/health", "/api/ready", "/docs", "/ui-settings")
        ),
        *(
            ask(mlflow + path)
            for path in ("/", "/health", "/version", "/metrics", "/static-files/x")
        ),
        ask(f"{prefect}/api/admin/settings"),
        ask(f"{prefect}/api/deployments/filter", {}),
        ask(f"{mlflow}/api/2.0/mlflow/experiments/search", {"max_results": 1}),
        ask(f"{mlflow}/ajax-api/3.0/mlflow/assistant/config"),
        ask(f"{mlflow}/graphql", {"query": "{__typename}"}),
        ask(f"{mlflow}/v1/traces", b"", "application/x-protobuf"),
        ask(f"{mlflow}/gateway/x/mlflow/invocations", {"messages": []}),
        ask(f"{mlflow}/ajax-api/2.0/mlflow/gateway-proxy?gateway_path=x"),
        ask(f"{mlflow}/api/2.0/mlflow-artifacts/artifacts?path=."),
    ]
    return "".join(seen)


Attack = Callable[[str, str, Path], str]
ATTACKS: tuple[Attack, ...] = (
    read_a_file,
    write_a_file,
    read_a_secret,
    run_a_command,
    follow_the_events,
    look_from_elsewhere,
    anything,
)
