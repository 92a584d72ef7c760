"""`headrace ui`: links that sign in, and how they get to a browser."""

import json
import os
import stat
import webbrowser
from pathlib import Path

import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient
from typer.testing import CliRunner

from cluster import services
from cluster.guard import Guard
from cluster.processes import Process
from flows.cli import app

URLS = {"prefect": "http://127.0.0.1:4200", "mlflow": "http://127.0.0.1:5000"}


@pytest.fixture(autouse=True)
def running(fresh_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Services that seem to run."""
    fresh_home.mkdir(mode=0o700)
    for name in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(services, "up", lambda wait_for_mlflow: None)
    services._write(
        {name: Process(pid=os.getpid(), boot="", started=1, url=url) for name, url in URLS.items()}
    )


def test_its_links_open_the_pages_signed_in() -> None:
    urls = json.loads(CliRunner().invoke(app, ["ui", "--json"]).stdout)["urls"]
    assert set(urls) == set(URLS)
    for name, link in urls.items():
        browser = TestClient(Guard(PlainTextResponse("the page"), URLS[name]), URLS[name])
        assert browser.get("/").status_code == 401
        reply = browser.get(link, follow_redirects=False)
        assert reply.status_code == 303 and "ticket" not in reply.headers["location"]


def test_it_says_how_from_another_machine() -> None:
    said = CliRunner().invoke(app, ["ui"]).stdout
    assert "ssh -N -L 4200:127.0.0.1:4200 -L 5000:127.0.0.1:5000 " in said
    assert all(f"{url}/?headrace-ticket=" in said for url in URLS.values())


def test_a_browser_is_told_by_a_private_file(
    fresh_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody on the machine sees the command that starts it."""
    opened: list[str] = []
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(webbrowser, "open", opened.append)
    said = CliRunner().invoke(app, ["ui"]).stdout
    pages = [Path(page.removeprefix("file://")) for page in opened]
    assert pages == [fresh_home / "ui" / f"{name}.html" for name in URLS]
    assert stat.S_IMODE((fresh_home / "ui").stat().st_mode) == 0o700
    for page in pages:
        assert page.read_text().split("url=")[1].split('"')[0].replace("&amp;", "&") in said


def test_servers_of_the_users_own_get_no_ticket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "https://prefect.example/api")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://mlflow.example")
    urls = json.loads(CliRunner().invoke(app, ["ui", "--json"]).stdout)["urls"]
    assert urls == {"prefect": "https://prefect.example", "mlflow": "https://mlflow.example"}
