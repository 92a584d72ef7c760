"""Servers that the user names by variables: whether they answer, and how they may be written down.

Each is said at once where it does not answer, since the libraries wait for minutes.
"""

import logging
import os
import socket
import urllib.error
import urllib.request
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from cluster.environment import given, given_store
from cluster.errors import BadInput
from cluster.url_secrets import hidden

PROBE_SECONDS, PORT_SECONDS = 5.0, 20.0
WHO_ASKS = (401, 403)
# How a client of HTTP/2, which gRPC speaks, begins: its preface and an empty SETTINGS frame.
HTTP_2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
log = logging.getLogger("headrace.services")


def check_prefect() -> None:
    """Raise BadInput unless the user's Prefect server answers; it may want to know who asks."""
    api = str(given("PREFECT_API_URL"))
    try:
        urllib.request.urlopen(f"{api}/health", timeout=PORT_SECONDS).close()  # noqa: S310
    except (OSError, ValueError) as error:
        if isinstance(error, urllib.error.HTTPError) and error.code in WHO_ASKS:
            return
        raise BadInput(
            f"PREFECT_API_URL is {api}, where no Prefect server answers ({error}): start that "
            "server, or `unset PREFECT_API_URL` (or leave the profile that sets it: "
            "`prefect profile use ephemeral`) to use a local one"
        ) from error


@cache
def tell_of_mlflow(uri: str | None) -> None:
    """Warn once when the user's tracking server does not answer; no run has to wait for it."""
    try:
        if uri:
            urllib.request.urlopen(uri, timeout=PROBE_SECONDS).close()  # noqa: S310
    except urllib.error.HTTPError:
        return  # it answers
    except (OSError, ValueError) as error:
        log.warning(
            "MLFLOW_TRACKING_URI is %s, where nothing answers (%s): what is tracked is kept, and "
            "sent when a server does; `unset MLFLOW_TRACKING_URI` to use a local one",
            uri,
            error,
        )


def check_ray() -> None:
    """Raise BadInput when `RAY_ADDRESS` names a cluster that cannot be reached."""
    address = os.environ.get("RAY_ADDRESS")
    if address and not ray_status()["healthy"]:
        raise BadInput(
            f"RAY_ADDRESS is {address}, where no Ray cluster answers: start it "
            "(`ray start --head`), or `unset RAY_ADDRESS` to use this machine alone"
        )


def ray_status() -> dict[str, Any]:
    """Ray lives with each run, so only a cluster named by the user can be down."""
    address = os.environ.get("RAY_ADDRESS") or "local"
    healthy = address in ("auto", "local") or speaks_grpc(address)
    return {"url": address, "pid": None, "healthy": healthy}


def speaks_grpc(address: str) -> bool:
    """Whether gRPC answers, as Ray's servers do: Ray itself waits for minutes for one that does
    not. Where a cluster asks for certificates, whether anything does.
    """
    parts = urlsplit(address if "//" in address else f"//{address}")
    try:
        where = (parts.hostname or "", parts.port or 10001)
        with socket.create_connection(where, PROBE_SECONDS) as server:
            if os.environ.get("RAY_USE_TLS") == "1":
                return True
            server.sendall(HTTP_2)
            with server.makefile("rb") as answer:
                return answer.read(4)[3:] == b"\4"  # the kind of its first frame: SETTINGS
    except (OSError, ValueError):
        return False


def given_mlflow() -> str | None:
    """The user's tracking server; a database they name is shown by our own UI."""
    uri = given_store()
    if not uri or not uri.startswith(("http://", "https://")):
        return None
    of_mlflow = "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
    check_no_login("MLFLOW_TRACKING_URI", uri, of_mlflow)
    return uri


def store_shown() -> str | None:
    """The user's tracking store as it may be written down; a database's address has a password."""
    return hidden(given_store() or "") or None


def check_no_login(variable: str, url: str, instead: str) -> None:
    """Raise BadInput for a server's address with a login in it: records and pages link to it."""
    if "@" in urlsplit(url).netloc or hidden(url) != url:
        raise BadInput(
            f"{variable} is {hidden(url)}: records and pages have links to it, so leave the login "
            f"out, and set {instead}"
        )
