"""Passwords in URLs are taken out where they enter, and put back where the URL is opened."""

import os
from pathlib import Path

import pytest

from cluster.errors import BadInput
from cluster.settings import Settings
from cluster.url_secrets import VARIABLE, check_kept, hidden, revealed

KEPT = [
    "https://host/a,b?page=2&author=me#x",
    "s3://bucket/a@b",
    "abfs://container@account.dfs.core.windows.net/x",
    "user:word@host",
    "https://host:80/x@y",
    "https://host/a:b@c",
    "http://[::1]:8000/a",
    r"\w+://\S+:\S+@",
    "https://host/x?monkey=1",
]
TAKEN = {
    "https://me:CANARY@host/x": "https://me:{}@host/x",
    "https://me:CANARY@x@host/x": "https://me:{}@host/x",
    "https://CANARY@host:80/x": "https://{}@host:80/x",
    "sources=[{path: s3://id:CANARY@bucket/x}]": "sources=[{{path: s3://id:{}@bucket/x}}]",
    "[http://a:CANARY@h,http://b:CANARY@h]": "[http://a:{}@h,http://b:{}@h]",
    "filecache::https://a:CANARY@h/x": "filecache::https://a:{}@h/x",
    "https://h/x?a=1&X-Amz-Signature=CANARY&b=2": "https://h/x?a=1&X-Amz-Signature={}&b=2",
    "https://h/x?access_token=CANARY": "https://h/x?access_token={}",
    "https://me:CANARY/x@host/x": "https://me:{}@host/x",
    "https://me:1a?CANARY#x@host/x": "https://me:{}@host/x",
    "postgresql://me:CANARY@host:5432/x": "postgresql://me:{}@host:5432/x",
    "https://h/x?a=1&jwt=CANARY": "https://h/x?a=1&jwt={}",
    "https://h/x?sv=1&sig=CANARY": "https://h/x?sv=1&sig={}",
}


@pytest.fixture(autouse=True)
def nothing_known(fresh_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "{}")
    monkeypatch.setenv("NETRC", "/nowhere")


@pytest.mark.parametrize("url", KEPT)
def test_what_holds_no_secret_stays(url: str) -> None:
    assert hidden(url) == url


@pytest.mark.parametrize("url", TAKEN)
def test_a_secret_is_taken_out_and_put_back(url: str) -> None:
    shown = hidden(url)
    mark = shown[shown.index("<") : shown.index(">") + 1]
    assert shown == TAKEN[url].format(mark, mark)
    assert hidden(shown) == shown
    assert revealed(shown) == url
    with pytest.raises(BadInput, match="which no schedule keeps"):
        check_kept(shown)


def test_settings_hold_no_password_however_they_are_made() -> None:
    class Inner(Settings):
        path: str

    class Outer(Settings):
        inner: Inner
        names: tuple[str, ...]

    url = "https://me:CANARY@host/x"
    made = Outer(inner=Inner(path=url), names=(url,))
    assert "CANARY" not in repr(made) + made.model_dump_json()
    assert revealed(made.inner.path) == revealed(made.names[0]) == url


def test_a_mark_of_another_process_opens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = hidden("https://me:CANARY@host/x")
    monkeypatch.setenv(VARIABLE, "{}")
    with pytest.raises(BadInput, match="is not kept"):
        revealed(shown)


def test_a_login_of_netrc_is_for_its_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logins = tmp_path / "netrc"
    logins.write_text("machine host login me password p@ss\n")
    monkeypatch.setenv("NETRC", str(logins))
    assert revealed("https://host/x") == "https://me:p%40ss@host/x"
    assert revealed("https://other/x") == "https://other/x"
    assert revealed("https://you@host/x") == "https://you@host/x"
    assert os.environ[VARIABLE] == "{}"
