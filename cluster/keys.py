"""The keys of a home, and what opens its services with them.

A service answers nobody without its password, which is derived from the home's key and its own
address: what a stranger who took the port of a dead one is told opens nothing else.
"""

import base64
import hashlib
import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.home import home

if TYPE_CHECKING:
    from itsdangerous import TimestampSigner

USER, TICKET = "headrace", "headrace-ticket"
TICKET_SECONDS, SESSION_SECONDS = 600, 7 * 86400
OURS = f"Basic {base64.b64encode(f'{USER}:'.encode()).decode()}"
"""What the header `Authorization` begins with for any service of ours, whatever its password."""
_BYTES = 32


def key_file(name: str) -> Path:
    """A random key in a file of the home that is the user's alone; made when first asked for."""
    path = home() / name
    try:
        whole = path.stat().st_size == 2 * _BYTES
    except FileNotFoundError:
        whole = False
    if not whole:
        _make(path)
    if path.stat().st_mode & 0o077:
        path.chmod(0o600)
    return path


def _make(path: Path) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(secrets.token_hex(_BYTES))
        file.flush()
        os.fsync(handle)
    if path.exists():  # cut short by a full disk or a power cut
        path.unlink(missing_ok=True)
    with suppress(FileExistsError):
        os.link(temporary, path)  # the first of several processes wins
    temporary.unlink()


def password(url: str) -> str:
    """The password of the service at this address."""
    key = key_file("service_key").read_bytes()
    return hmac.new(key, url.encode(), "sha256").hexdigest()


def authorization(url: str) -> str:
    """The header `Authorization` of a request to the service at this address."""
    return "Basic " + base64.b64encode(f"{USER}:{password(url)}".encode()).decode()


def ticket(url: str) -> str:
    """What signs a browser in to the service at this address, once, in the next ten minutes."""
    return _signer(url, "ticket").sign(secrets.token_hex(8)).decode()


def link(url: str, page: str = "") -> str:
    """The address that signs a browser in to the service at `url` and shows that page of it."""
    return f"{url}/?{TICKET}={ticket(url)}{page}"


def session(url: str) -> str:
    """What a browser that is signed in shows with each request, for a week."""
    return _signer(url, "session").sign(secrets.token_hex(8)).decode()


def is_ticket(url: str, shown: str) -> bool:
    """Whether this is a ticket of the last ten minutes."""
    return _signer(url, "ticket").validate(shown, TICKET_SECONDS)


def is_session(url: str, shown: str) -> bool:
    """Whether this is what a browser shows that signed in within the last week."""
    return _signer(url, "session").validate(shown, SESSION_SECONDS)


def _signer(url: str, purpose: str) -> "TimestampSigner":
    from itsdangerous import TimestampSigner

    return TimestampSigner(password(url), f"headrace.{purpose}", digest_method=hashlib.sha256)
