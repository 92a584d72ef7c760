"""A model's endpoint that answers as a test says."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Scripted:
    """One response of the endpoint."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    drip_seconds: float = 0.0
    missing: int = 0  # bytes that are promised and never come


@dataclass
class Server:
    """A judge endpoint that answers as `script` says, and remembers what it was asked."""

    url: str
    script: Callable[[dict[str, Any], int], Scripted]
    bodies: list[dict[str, Any]] = field(default_factory=list)
    authorizations: list[str | None] = field(default_factory=list)
    looks: list[str] = field(default_factory=list)  # paths of GET


def completion(content: str, **more: Any) -> Scripted:
    """A chat completion with this text."""
    choice = {"message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 100, "completion_tokens": 2}
    body = {"choices": [{**choice, **more}], "usage": usage}
    return Scripted(body=json.dumps(body).encode())


@contextmanager
def serving() -> Iterator[Server]:
    """The endpoint, on a free port."""
    server = Server("", lambda body, call: completion("4"))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            server.bodies.append(body)
            server.authorizations.append(self.headers.get("Authorization"))
            reply = server.script(body, len(server.bodies) - 1)
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply.body) + reply.missing))
            self.end_headers()
            step = 1 if reply.drip_seconds else 65536
            try:
                for at in range(0, len(reply.body), step):
                    self.wfile.write(reply.body[at : at + step])
                    self.wfile.flush()
                    time.sleep(reply.drip_seconds)
            except OSError:
                return  # the client has hung up

        def do_GET(self) -> None:
            server.looks.append(self.path)
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            return

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    server.url = f"http://127.0.0.1:{http.server_address[1]}/v1"
    yield server
    http.shutdown()
    http.server_close()
