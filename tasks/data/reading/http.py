"""One file over HTTP, to disk: resumed where it broke off, never a page of HTML for data.

The validators of the last complete copy (`ETag`, `Last-Modified`) lie beside it, so that a file
that has not changed is not sent again.
"""

import itertools
import json
import logging
from pathlib import Path
from typing import Any

from cluster.addresses import check_host, trace
from cluster.errors import BadInput
from cluster.files import write_atomically
from tasks.data.reading.formats import data_suffix

TIMEOUT_S = 60.0
MAX_REDIRECTS = 5
WEB_PAGES = (".html", ".htm")
NOT_MODIFIED, PARTIAL, RANGE_ENDED = 304, 206, 416
log = logging.getLogger("headrace.read")


def fetch(url: str, shown: str, local: Path) -> None:
    """Copy a URL to a file, or go on with what an attempt before left of it; messages have it as
    `shown`.

    Redirects are followed, as data sets lie on other hosts than their names; such a host is logged,
    gets no password of the URL, and must keep to https where the URL does. Raises TransientError
    for what another attempt may mend (no connection, status 408, 429 or 5xx, a body cut short),
    BadInput for any other status and for a web page in place of data.
    """
    import httpx

    check_host(url)
    partial, validators = local.with_name(f".{local.name}.part"), _beside(local)
    known = json.loads(validators.read_text()) if validators.exists() and local.exists() else {}
    begun = _beside(partial)
    try:
        with (
            httpx.Client(
                follow_redirects=True, max_redirects=MAX_REDIRECTS, timeout=TIMEOUT_S
            ) as client,
            client.stream(
                "GET",
                url,
                headers=_headers(known, partial, begun),
                extensions={"trace": trace},
            ) as response,
        ):
            if response.status_code == NOT_MODIFIED and known:
                return
            _check(shown, local, partial, response)
            found = {
                k: response.headers[k] for k in ("etag", "last-modified") if k in response.headers
            }
            write_atomically(begun, json.dumps(found))
            with partial.open("ab" if response.status_code == PARTIAL else "wb") as file:
                for chunk in response.iter_raw():
                    file.write(chunk)
    except httpx.TooManyRedirects as error:
        raise BadInput(f"{shown}: {error}") from error
    except httpx.TransportError as error:
        raise TransientError(f"{type(error).__name__}: {error}") from error
    partial.replace(local)
    begun.replace(validators)


def _beside(path: Path) -> Path:
    """Where the validators of a file are; hidden, so it is no source itself."""
    return path.with_name(f".{path.name.lstrip('.')}.http")


def _headers(known: dict[str, str], partial: Path, begun: Path) -> dict[str, str]:
    """Ask only for what has changed, or, after a broken attempt, for the rest of the same file."""
    headers = {"Accept-Encoding": "identity"}
    if known:
        names = {"etag": "If-None-Match", "last-modified": "If-Modified-Since"}
        return headers | {names[k]: v for k, v in known.items()}
    if partial.exists() and begun.exists():
        etag = json.loads(begun.read_text()).get("etag", "")
        if etag and not etag.startswith("W/"):
            headers |= {"Range": f"bytes={partial.stat().st_size}-", "If-Range": etag}
    return headers


def _check(url: str, local: Path, partial: Path, response: Any) -> None:
    status, kind = response.status_code, response.headers.get("content-type", "")
    if status == RANGE_ENDED:  # what an attempt before left is not a beginning of this
        _beside(partial).unlink(missing_ok=True)
        raise TransientError("the server refused to send the rest")
    if status in (408, 429) or status >= 500:
        raise TransientError(f"status {status}")
    if status not in (200, PARTIAL):
        raise BadInput(f"{url} cannot be fetched: status {status} {response.reason_phrase}")
    _check_way(url, [step.url for step in (*response.history, response)])
    begun = f"bytes {partial.stat().st_size if partial.exists() else 0}-"
    if status == PARTIAL and not response.headers.get("content-range", "").startswith(begun):
        raise BadInput(f"{url}: the server sent another part than was asked for")
    if "text/html" in kind and data_suffix(local.name) not in WEB_PAGES:
        raise BadInput(
            f"{url}: the server sent a web page (content-type {kind}) for {local.name}; "
            "log in, accept its terms or correct the URL"
        )


def _check_way(url: str, steps: list[Any]) -> None:
    """Refuse redirects from https to another scheme; log the hosts that they lead to."""
    for step, after in itertools.pairwise(steps):
        if step.scheme == "https" != after.scheme:
            raise BadInput(f"{url} leads to {after.host}, and not by https")
        if step.host != after.host:
            log.warning("%s leads to another host, %s", url, after.host)


class TransientError(Exception):
    """A failure that another attempt may not meet."""
