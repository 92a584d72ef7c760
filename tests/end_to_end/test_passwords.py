"""A password in a source's URL is in nothing that a run leaves behind, and opens the source."""

import base64
import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from secrets import token_hex

import pytest

from tests.shell import headrace

CANARY, SIGNATURE = f"canary-{token_hex(8)}", f"signed-{token_hex(8)}"
TEXT = "Of the mills on this river the one numbered {} has the {} oldest wheel of them all. "
ROWS = "".join(json.dumps({"text": TEXT.format(i, 3 * i) * 5}) + "\n" for i in range(50))


class Behind(BaseHTTPRequestHandler):
    """Answers who shows the password and the signature."""

    def do_GET(self) -> None:
        shown = base64.b64encode(f"me:{CANARY}".encode()).decode()
        known = self.headers.get("Authorization") == f"Basic {shown}"
        known &= f"?sig={SIGNATURE}" in self.path
        self.send_response(200 if known else 401)
        body = ROWS.encode() if known else b""
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@pytest.fixture
def server() -> Iterator[int]:
    serving = ThreadingHTTPServer(("127.0.0.1", 0), Behind)
    threading.Thread(target=serving.serve_forever, args=(0.02,), daemon=True).start()
    yield serving.server_port
    serving.shutdown()
    serving.server_close()


def holding(folder: Path) -> list[Path]:
    """The files that have the password or the signature in them."""
    secrets = (CANARY.encode(), SIGNATURE.encode())
    found = []
    for path in (path for path in folder.rglob("*") if path.is_file()):
        with contextlib.suppress(FileNotFoundError):  # the services that run remove some
            found += [path] if any(secret in path.read_bytes() for secret in secrets) else []
    return found


def test_d16_a_password_in_a_source_url_is_left_nowhere(
    server: int, shared_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    url = f"http://me:{CANARY}@127.0.0.1:{server}/rows.jsonl?sig={SIGNATURE}"
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"name: locked\nsources: [{{path: '{url}'}}]\n")
    done = headrace("data", str(recipe), "--set", f"sources.0.path='{url}'", "--json")
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)
    assert run["stages"][0]["ledger"]["in"] == 50
    assert CANARY not in done.stdout + done.stderr and SIGNATURE not in done.stdout + done.stderr
    assert holding(recipe.parent) == [recipe]  # so they would be found
    record = json.loads((shared_home / "runs" / f"{run['id']}.json").read_text())
    assert record["recipe"]["sources"][0]["path"].startswith("http://me:<hidden-")
    assert holding(shared_home) == []
    refused = headrace("deploy", str(recipe), "--cron", "0 3 * * *")
    assert refused.returncode == 2 and "which no schedule keeps" in refused.stderr
