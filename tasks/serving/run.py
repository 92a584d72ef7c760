"""A service in this process: uvicorn on a socket, the engine beside it, a stop that loses nothing.

headrace serve MODEL
"""

import contextlib
import os
import socket
from collections.abc import AsyncIterator, Iterator
from types import FrameType

from starlette.applications import Starlette

from cluster.errors import BadInput
from tasks.serving.app import Limits, application
from tasks.serving.service import Service

KEY = "HEADRACE_API_KEY"
GRACE_SECONDS = 30


@contextlib.contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A socket to serve at. Raises BadInput for an address or port that cannot be had."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        opened = socket.create_server(address[:2], family=family, backlog=2048)
    except OSError as error:
        raise BadInput(f"cannot listen at {host}:{port}: {error}; --port takes another") from error
    with opened:
        yield opened


def run(service: Service, opened: socket.socket, limits: Limits) -> None:
    """Serve until told to stop; what is being answered then has 30 seconds to end."""
    import uvicorn

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            service.refuse()
            super().handle_exit(sig, frame)

    app = at_work(service, limits, os.environ.get(KEY) or None)
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=GRACE_SECONDS)
    Server(config).run(sockets=[opened])


def at_work(service: Service, limits: Limits, key: str | None) -> Starlette:
    """The application of a service whose engine runs from its start to its end."""

    @contextlib.asynccontextmanager
    async def running(app: Starlette) -> AsyncIterator[None]:
        service.start()
        yield
        service.close(GRACE_SECONDS)

    app = application(service, limits, key)
    app.router.lifespan_context = running
    return app
