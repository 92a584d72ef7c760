"""The door of a local service: it lets in this user's programs and browsers, and nobody else.

Every user of a machine reaches its loopback, and so does every web page that a browser on it shows.
"""

import os
import socket
import struct
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from secrets import compare_digest
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.websockets import WebSocketClose

from cluster.keys import SESSION_SECONDS, TICKET, authorization, is_session, is_ticket, session

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

NAMES = ("127.0.0.1", "localhost")
SIGN_IN = (
    "This page is for the user whose Headrace this is, in a browser that has signed in:\n"
    "`headrace ui` gives it a link.\n"
)
FOREIGN = "Another site, or another name than 127.0.0.1, asks for this.\n"
ESTABLISHED = "01"


class Guard:
    """An ASGI app around a service's own: nothing reaches that without the service's password, or
    from a browser that has not signed in, or from a page of another site.
    """

    def __init__(self, app: "ASGIApp", url: str):
        self.app, self.url = app, url
        self.cookie = f"headrace-{urlsplit(url).port}"  # browsers tell hosts apart, not ports
        self._spent: set[str] = set()

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answer a request, or pass it on."""
        refusal = None if scope["type"] == "lifespan" else self._refusal(HTTPConnection(scope))
        if refusal is None:
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await WebSocketClose()(scope, receive, send)
        else:
            await refusal(scope, receive, send)

    def _refusal(self, asked: HTTPConnection) -> Response | None:
        """What is answered in the service's place, if anything is."""
        if _is_foreign(asked):
            return PlainTextResponse(FOREIGN, HTTPStatus.FORBIDDEN)
        if (shown := asked.query_params.get(TICKET)) and self._accepts(shown):
            return self._sign_in(asked)
        if self._knows(asked):
            return None
        return PlainTextResponse(SIGN_IN, HTTPStatus.UNAUTHORIZED)

    def _knows(self, asked: HTTPConnection) -> bool:
        given = asked.headers.get("authorization", "").encode()
        if compare_digest(given, authorization(self.url).encode()):
            return True
        return is_session(self.url, asked.cookies.get(self.cookie, "")) and _of_this_user(asked)

    def _accepts(self, shown: str) -> bool:
        if shown in self._spent or not is_ticket(self.url, shown):
            return False
        self._spent.add(shown)
        return True

    def _sign_in(self, asked: HTTPConnection) -> Response:
        """Give the browser its cookie, and the page without the ticket in its address."""
        page = str(asked.url.remove_query_params(TICKET))
        reply = RedirectResponse(page, HTTPStatus.SEE_OTHER)
        reply.set_cookie(self.cookie, session(self.url), SESSION_SECONDS, httponly=True)
        return reply


def serve(app: "ASGIApp", url: str, handle: int, **options: Any) -> None:
    """Serve an app behind its guard, on the socket of this file number, until killed."""
    import uvicorn

    listening = socket.socket(fileno=handle)
    listening.set_inheritable(False)
    # Else whoever asks may say in a header which address asks; tickets are for no log.
    options |= {"proxy_headers": False, "access_log": False}
    config = uvicorn.Config(Guard(app, url), **options)
    uvicorn.Server(config).run(sockets=[listening])


def _is_foreign(asked: HTTPConnection) -> bool:
    """Whether a page of another site asks, or one that was told that its own name is ours.

    Any port will do: that of a tunnel is another. A link on another site's page may be followed.
    """
    host, says = asked.headers.get("host", ""), asked.headers.get
    with suppress(ValueError):
        if urlsplit(f"//{host}").hostname in NAMES:
            own = says("origin", f"http://{host}") == f"http://{host}"
            near = says("sec-fetch-site", "none") in ("same-origin", "none")
            opens = says("sec-fetch-dest") == "document" and asked.scope.get("method") == "GET"
            return not (own and (near or opens))
    return True


def _of_this_user(asked: HTTPConnection) -> bool:
    """Whether a process of this user, or of root, is at the other end; true where Linux does not
    tell.

    A browser shows its cookies to every port of a host, also to one that a stranger listens on.
    """
    ends = [_hexadecimal(*asked.scope[end]) for end in ("client", "server")]
    tables = [table for name in ("tcp", "tcp6") if (table := Path("/proc/net", name)).exists()]
    for row in (line.split() for table in tables for line in table.read_text().splitlines()):
        # Of a socket that its process has closed, 0 is told as the user.
        if row[1].endswith(ends[0]) and row[2].endswith(ends[1]) and row[3] == ESTABLISHED:
            return int(row[7]) in (0, os.getuid())
    return not tables


def _hexadecimal(host: str, port: int) -> str:
    """An address as the kernel's tables show it."""
    return f"{struct.unpack('=I', socket.inet_aton(host))[0]:08X}:{port:04X}"
