"""A server that misbehaves in every way a download can meet."""

import contextlib
import ipaddress
import re
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cluster.errors import BadInput, MissingExtra
from tasks.data.reading.http import _check_way

DATA = b'{"text": "one"}\n{"text": "two"}\n{"text": "three"}\n'


class Handler(BaseHTTPRequestHandler):
    """Answers by path: `/short-once.jsonl` breaks off the first time, and so on."""

    protocol_version = "HTTP/1.1"
    asked: list[tuple[str, str | None]] = []
    authorised: list[str | None] = []
    etag = '"v1"'
    failures = 0

    def log_message(self, *arguments):
        """Keep quiet."""

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")  # said, or the client may ask on it once more
        self.end_headers()
        self.wfile.write(body)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        kind, wanted = self.path.strip("/").split(".")[0], self.headers.get("Range")
        Handler.asked.append((self.path, wanted))
        Handler.authorised.append(self.headers.get("Authorization"))
        first = len(Handler.asked) == 1
        if self.headers.get("If-None-Match") == self.etag:
            return self.answer(304)
        if kind == "missing":
            return self.answer(404)
        if kind == "forbidden":
            return self.answer(403)
        if kind == "page":
            return self.answer(200, b"<html>log in</html>", Content_Type="text/html")
        if kind == "moved":
            return self.answer(301, Location="/good.jsonl")
        if kind == "elsewhere":
            return self.answer(
                302, Location=f"http://localhost:{self.server.server_port}/good.jsonl"
            )
        if kind == "metadata":
            return self.answer(302, Location="http://metadata.example:1/good.jsonl")
        if kind == "listing":
            links = b'<a href="a.jsonl">a</a><a href="../../../outside.jsonl">b</a>'
            return self.answer(200, links, Content_Type="text/html")
        if kind == "loop":
            return self.answer(302, Location="/loop.jsonl")
        if kind == "busy" or (kind == "busy-once" and first):
            return self.answer(503)
        if kind == "short" or (kind.startswith("short-") and first):
            return self.answer(200, DATA[:20], Content_Length=str(len(DATA)), ETag=self.etag)
        etag = '"v2"' if kind == "short-changed" else self.etag
        if wanted and self.headers.get("If-Range") == etag and kind != "short-norange":
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
            span = f"bytes {start}-{len(DATA) - 1}/{len(DATA)}"
            return self.answer(206, DATA[start:], Content_Range=span, ETag=etag)
        return self.answer(200, DATA, ETag=etag)


@pytest.fixture
def url(monkeypatch):
    monkeypatch.setattr("tasks.data.reading.remote.FIRST_WAIT_S", 0.0)
    Handler.asked, Handler.authorised, Handler.etag = [], [], '"v1"'
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def requests(path):
    return [wanted for asked, wanted in Handler.asked if asked == path]


def test_a_file_is_fetched_once_and_again_when_its_etag_changes(url, read_path):
    artifact = read_path(f"{url}/good.jsonl")
    assert artifact.manifest.rows == 3
    assert artifact.manifest.facts["sources"][0]["label"] == "good.jsonl"
    read_path(f"{url}/good.jsonl")
    Handler.etag = '"v2"'
    assert read_path(f"{url}/good.jsonl").manifest.rows == 3


RESUMED = {
    "short-once": [None, "bytes=20-"],
    "short-changed": [None, "bytes=20-"],
    "short-norange": [None, "bytes=20-"],
    "busy-once": [None, None],
    "moved": [None],
}


@pytest.mark.parametrize("kind", RESUMED)
def test_what_fails_in_passing_ends_with_the_whole_file(url, read_path, kind):
    assert read_path(f"{url}/{kind}.jsonl").manifest.rows == 3
    assert requests(f"/{kind}.jsonl")[: len(RESUMED[kind])] == RESUMED[kind]


REFUSED = {
    "missing": (r"status 404 Not Found", 1),
    "forbidden": (r"status 403 Forbidden", 1),
    "page": (r"sent a web page \(content-type text/html\) for page\.jsonl", 1),
    "loop": (r"[Rr]edirect", 6),
    "busy": (r"status 503; 4 attempts", 4),
    "short": (r"4 attempts", 4),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_lasts_is_an_error_and_leaves_no_file(url, read_path, store, kind):
    message, count = REFUSED[kind]
    with pytest.raises(BadInput, match=message):
        read_path(f"{url}/{kind}.jsonl")
    assert len(Handler.asked) == count
    assert not list(store.root.glob(f"downloads/*/{kind}.jsonl"))


def test_another_host_is_followed_named_and_told_no_password(url, read_path, caplog):
    address = url.removeprefix("http://")
    with caplog.at_level("WARNING", "headrace.read"):
        artifact = read_path(f"http://me:secret@{address}/elsewhere.jsonl")
    assert artifact.manifest.rows == 3
    assert "secret" not in artifact.manifest.model_dump_json() + caplog.text
    assert "leads to another host, localhost" in caplog.text
    assert [bool(kind) for kind in Handler.authorised[:2]] == [True, False]


def test_a_redirect_to_a_metadata_service_is_not_followed(url, read_path, monkeypatch):
    """After resolution: the name that it leads to is a harmless one, at first."""
    real = socket.create_connection

    def create(address, *arguments, **options):
        here = address if address[0] != "metadata.example" else ("127.0.0.1", int(url[-5:]))
        return real(here, *arguments, **options)

    monkeypatch.setattr("socket.create_connection", create)
    assert read_path(f"{url}/metadata.jsonl").manifest.rows == 3  # so it would be
    monkeypatch.setattr("cluster.addresses.NETWORKS", (ipaddress.ip_network("127.0.0.1/32"),))
    with pytest.raises(BadInput, match="cloud metadata"):
        read_path(f"{url}/metadata.jsonl")


@pytest.mark.parametrize("held", [False, True])
def test_a_listing_that_links_outside_writes_nothing_there(
    url, read_path, store, monkeypatch, held
):
    if not held:
        monkeypatch.setattr("tasks.data.reading.remote.inside", lambda folder, name: folder / name)
    with contextlib.suppress(BadInput):
        read_path(f"{url}/listing/")
    assert (store.root.parent / "outside.jsonl").exists() is not held


def test_no_redirect_leaves_https():
    import httpx

    steps = [httpx.URL(u) for u in ("https://a/x", "http://b/x", "https://b/x")]
    with pytest.raises(BadInput, match="https://a/x leads to b, and not by https"):
        _check_way("https://a/x", steps)


def test_a_server_that_is_not_there_is_named(store, read_path, monkeypatch):
    monkeypatch.setattr("tasks.data.reading.remote.FIRST_WAIT_S", 0.0)
    with pytest.raises(
        BadInput, match=r"http://127\.0\.0\.1:1/a\.jsonl cannot be fetched: Connect"
    ):
        read_path("http://127.0.0.1:1/a.jsonl")


@pytest.mark.parametrize(("scheme", "package"), [("s3", "headrace[s3]"), ("az", "adlfs")])
def test_a_missing_package_is_named_with_its_command(
    store, read_path, monkeypatch, scheme, package
):
    def absent(url):
        raise ImportError(f"Install its package to access {scheme}")

    monkeypatch.setattr("fsspec.core.url_to_fs", absent)
    with pytest.raises(MissingExtra, match=re.escape(f"uv pip install '{package}'")):
        read_path(f"{scheme}://bucket/a.jsonl")


def test_a_listed_file_that_is_cut_or_changes_is_fetched_again(store, read_path, monkeypatch):
    import fsspec

    monkeypatch.setattr("tasks.data.reading.remote.FIRST_WAIT_S", 0.0)
    memory = fsspec.filesystem("memory")
    memory.pipe("/cut/a.jsonl", DATA)
    original, calls = type(memory).get_file, []

    def cut_once(self, remote, local, **options):
        original(self, remote, local, **options)
        calls.append(remote)
        if len(calls) == 1:
            with Path(local).open("r+b") as file:
                file.truncate(20)

    monkeypatch.setattr(type(memory), "get_file", cut_once)
    assert read_path("memory://cut/*.jsonl").manifest.rows == 3
    assert len(calls) == 2
    memory.rm("/cut", recursive=True)
