"""The door of the local services, around an app that tells everybody everything."""

import os
import socket
import stat
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from cluster import guard, keys
from cluster.guard import TICKET, Guard
from cluster.keys import authorization, key_file, password, session, ticket

URL = "http://127.0.0.1:4200"
EVIL = "http://evil.example"


async def secrets(scope: Any, receive: Any, send: Any) -> None:
    """An app without a door."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": "the secret"})
    else:
        await PlainTextResponse("the secret")(scope, receive, send)


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The peer is a process of this user: there is no socket here to tell."""
    monkeypatch.setattr(guard, "_of_this_user", lambda asked: True)


def client(app: Any, **headers: str) -> TestClient:
    return TestClient(app, base_url=URL, headers=headers, follow_redirects=False)


def basic(user: str, word: str) -> str:
    return "Basic " + b64encode(f"{user}:{word}".encode()).decode()


ATTACKS: dict[str, dict[str, str]] = {
    "no password": {},
    "an empty one": {"authorization": basic("headrace", "")},
    "a guessed one": {"authorization": basic("headrace", "0" * 64)},
    "one that is no text": {"authorization": "Basic \xff\xfe"},
    "another scheme": {"authorization": "Bearer headrace"},
    "a guessed cookie": {"cookie": "headrace-4200=headrace"},
    "the address in a header": {"x-forwarded-for": "127.0.0.1", "x-forwarded-host": "127.0.0.1"},
}


@pytest.mark.parametrize("headers", ATTACKS.values(), ids=ATTACKS)
@pytest.mark.usefixtures("fresh_home", "ours")
def test_who_has_no_password_gets_nothing(headers: dict[str, str]) -> None:
    coded = {name: value.encode("latin-1") for name, value in headers.items()}
    assert client(secrets, **coded).get("/api/health").text == "the secret"  # type: ignore[arg-type]
    guarded = client(Guard(secrets, URL), **coded)  # type: ignore[arg-type]
    for path in ("/", "/api/health", "/health", "/version", "/%2e%2e/", f"/?{TICKET}=x.y.z"):
        for method in ("GET", "HEAD", "POST", "OPTIONS", "PUT", "DELETE", "PATCH"):
            reply = guarded.request(method, path)
            assert (reply.status_code, "the secret" in reply.text) == (401, False)
    with pytest.raises(WebSocketDisconnect), guarded.websocket_connect("/api/events/out"):
        pass


FOREIGN: dict[str, dict[str, str]] = {
    "a name that was bound anew": {"host": "evil.example:4200"},
    "one that begins alike": {"host": "127.0.0.1.evil.example"},
    "one that hides another": {"host": "127.0.0.1@evil.example"},
    "none": {"host": ""},
    "a page elsewhere": {"origin": EVIL},
    "a page of another port": {"origin": "http://127.0.0.1:6666"},
    "a page without a site": {"origin": "null"},
    "an image elsewhere": {"sec-fetch-site": "cross-site", "sec-fetch-dest": "image"},
    "a frame of another port": {"sec-fetch-site": "same-site", "sec-fetch-dest": "iframe"},
}


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.usefixtures("fresh_home", "ours")
def test_what_a_foreign_page_has_a_browser_ask_for_is_refused(headers: dict[str, str]) -> None:
    """A browser shows its cookies whoever's page it is."""
    signed_in = {"cookie": f"headrace-4200={session(URL)}"}
    assert client(secrets, **signed_in | headers).post("/").text == "the secret"
    assert client(Guard(secrets, URL), **signed_in).post("/").text == "the secret"
    guarded = client(Guard(secrets, URL), **signed_in | headers)
    for method in ("GET", "POST", "OPTIONS"):
        assert guarded.request(method, "/").status_code == 403
    with pytest.raises(WebSocketDisconnect), guarded.websocket_connect("/api/events/out"):
        pass


@pytest.mark.usefixtures("fresh_home", "ours")
def test_a_form_elsewhere_posts_nothing_and_a_link_elsewhere_opens_the_page() -> None:
    opens = {"sec-fetch-site": "cross-site", "sec-fetch-dest": "document"}
    guarded = client(Guard(secrets, URL), cookie=f"headrace-4200={session(URL)}", **opens)
    assert guarded.get("/runs").text == "the secret"
    assert guarded.post("/runs").status_code == 403


@pytest.mark.parametrize("host", ["127.0.0.1:4200", "localhost:9000", "127.0.0.1"])
@pytest.mark.usefixtures("fresh_home", "ours")
def test_the_pages_own_requests_pass_through_a_tunnel_too(host: str) -> None:
    """A tunnel may begin at another port."""
    own = {"host": host, "origin": f"http://{host}", "sec-fetch-site": "same-origin"}
    signed_in = {"cookie": f"headrace-4200={session(URL)}"}
    for shown in ({"authorization": authorization(URL)}, signed_in):
        guarded = client(Guard(secrets, URL), **own | shown)
        assert guarded.post("/api/flows/filter").text == "the secret"
        with guarded.websocket_connect("/api/events/out") as events:
            assert events.receive_text() == "the secret"


@pytest.mark.usefixtures("fresh_home", "ours")
def test_a_ticket_signs_in_once(monkeypatch: pytest.MonkeyPatch) -> None:
    app, shown = Guard(secrets, URL), ticket(URL)
    browser = client(app)
    reply = browser.get(f"/runs?{TICKET}={shown}&tab=1")
    assert (reply.status_code, reply.headers["location"]) == (303, f"{URL}/runs?tab=1")
    assert {"HttpOnly", "SameSite=lax"} <= set(reply.headers["set-cookie"].split("; "))
    assert browser.get("/runs").text == "the secret"
    assert client(app).get(f"/?{TICKET}={shown}").status_code == 401
    late, old = ticket(URL), session(URL)
    monkeypatch.setattr(keys, "TICKET_SECONDS", -1)
    monkeypatch.setattr(keys, "SESSION_SECONDS", -1)
    assert client(app).get(f"/?{TICKET}={late}").status_code == 401
    assert client(app, cookie=f"headrace-4200={old}").get("/").status_code == 401


@pytest.mark.usefixtures("fresh_home", "ours")
def test_what_opens_one_service_opens_no_other() -> None:
    other = "http://127.0.0.1:5000"
    guarded = client(Guard(secrets, URL))
    for headers in (
        {"authorization": authorization(other)},
        {"cookie": f"headrace-4200={session(other)}"},
        {"cookie": f"headrace-4200={ticket(URL)}"},  # no ticket is a session, and none a ticket
    ):
        assert guarded.get("/", headers=headers).status_code == 401
    for shown in (ticket(other), session(URL)):
        assert guarded.get(f"/?{TICKET}={shown}").status_code == 401


def test_the_key_is_private_stays_the_same_and_is_never_half_there(fresh_home: Path) -> None:
    path = key_file("service_key")
    first = password(URL)
    assert (stat.S_IMODE(path.stat().st_mode), path.stat().st_size) == (0o600, 64)
    path.chmod(0o644)
    assert (password(URL), stat.S_IMODE(path.stat().st_mode)) == (first, 0o600)
    path.write_text("")  # by a power cut
    assert password(URL) != first
    assert key_file("service_key").stat().st_size == 64
    assert [entry.name for entry in fresh_home.iterdir()] == ["service_key"]


@pytest.fixture
def served(fresh_home: Path) -> Iterator[str]:
    """The address of the app behind its guard, on a socket of the kernel's."""
    listening = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    here = Path(__file__).parent
    code = f"from cluster.guard import serve; from test_guard import secrets; serve(secrets, '{url}', {listening.fileno()}, log_level='warning')"  # noqa: E501
    variables = os.environ | {"PYTHONPATH": f"{here}{os.pathsep}{Path.cwd()}"}
    command = [sys.executable, "-c", code]
    server = subprocess.Popen(command, env=variables, pass_fds=(listening.fileno(),))
    listening.close()
    yield url
    server.kill()
    server.wait()


@pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="acts as another user")
def test_a_cookie_that_another_user_got_hold_of_opens_nothing(served: str) -> None:
    """Browsers send it to every port of the host, and one may be that user's."""
    stolen = {"cookie": f"headrace-{served.rsplit(':', 1)[1]}={session(served)}"}
    assert httpx.get(served, headers=stolen, timeout=60).text == "the secret"
    lies = {"x-forwarded-for": "127.0.0.1"}
    assert as_another_user(served, stolen) == as_another_user(served, stolen | lies) == 401


def as_another_user(url: str, headers: dict[str, str]) -> int:
    """The status of a request by a process of the user `nobody`."""
    into, out = os.pipe()
    if (child := os.fork()) == 0:
        os.setgroups([])
        os.setuid(65534)
        with socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1]))) as asking:
            lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
            host = url.removeprefix("http://")
            asking.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\n{''.join(lines)}\r\n".encode())
            os.write(out, asking.recv(12)[9:])
        os._exit(0)
    os.waitpid(child, 0)
    os.close(out)
    with os.fdopen(into) as answer:
        return int(answer.read())
