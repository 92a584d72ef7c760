"""`headrace deploy` to containers: they get addresses and an image, no path and no secret."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from cluster import deployments, services
from cluster.errors import BadInput
from flows.cli import app
from tests.pages import ROOT
from tests.prefect_api import prefect_api

S3 = "http://s3.example:9000"
CANARY = "canary-of-the-bucket"
GIVEN = {
    "PREFECT_API_URL": "http://prefect.example:4200/api",
    "MLFLOW_TRACKING_URI": "http://mlflow.example:5000",
    "RAY_ADDRESS": "ray-head.example:6379",
    "HEADRACE_STORE": "s3://bucket/headrace",
}


@pytest.fixture(autouse=True)
def given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in GIVEN.items():
        monkeypatch.setenv(name, value)


def deploy(*more: str) -> None:
    arguments = ["deploy", "smoke", "--cron", "0 3 * * *", "--json"]
    app([*arguments, *more], standalone_mode=False)


@pytest.mark.parametrize(
    ("changes", "more", "why"),
    [
        ({}, [], "--pool kubernetes needs --image"),
        ({"HEADRACE_STORE": ""}, ["--image", "i"], "HEADRACE_STORE is not set"),
        ({"HEADRACE_STORE": "file:///shared"}, ["--image", "i"], "is file:///shared, which is"),
        ({"MLFLOW_TRACKING_URI": "sqlite:////m.db"}, ["--image", "i"], "which is this machine's"),
        ({"RAY_ADDRESS": "127.0.0.1:6379"}, ["--image", "i"], "RAY_ADDRESS is 127.0.0.1:6379"),
        ({"PREFECT_API_URL": "http://localhost:4200/api"}, ["--image", "i"], "PREFECT_API_URL is"),
        ({}, ["--image", "i", "--set", "sources=[{path: mine/*.txt}]"], "mine/.*txt is a path"),
    ],
)
def test_containers_that_would_not_find_what_they_need_are_refused(
    changes: dict[str, str],
    more: list[str],
    why: str,
    fresh_home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.txt").touch()
    monkeypatch.chdir(tmp_path)
    for name, value in changes.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(BadInput, match=why):
        deploy("--pool", "kubernetes", *more)


@pytest.fixture
def server(shared_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx.Client]:
    """This test run's Prefect server, as if containers reached it."""
    for name in GIVEN:
        monkeypatch.setenv(name, "")
    services.up()
    monkeypatch.setattr(deployments, "_check_reached", lambda *_: None)
    monkeypatch.setattr(deployments, "check_prefect", lambda: None)
    for name, value in GIVEN.items():
        if name != "PREFECT_API_URL":
            monkeypatch.setenv(name, value)
    with prefect_api() as client:
        yield client


@pytest.mark.parametrize("pool", ["docker", "kubernetes"])
def test_a_deployment_to_containers_holds_no_path_and_no_secret(
    pool: str,
    server: httpx.Client,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CANARY)
    monkeypatch.setenv("AWS_ENDPOINT_URL", S3)
    deploy("--pool", pool, "--image", "headrace:1")
    told = json.loads(capfd.readouterr().out)
    assert told["deployment"] == "headrace/smoke" and "T03:00:00" in told["next_run"]
    about = server.get(f"/deployments/name/{told['deployment']}").json()
    server.delete(f"/deployments/{about['id']}").raise_for_status()
    assert about["work_pool_name"] == told["pool"] == f"headrace-{pool}"
    job = about["job_variables"]
    assert job["image"] == "headrace:1"
    addresses = {name: value for name, value in GIVEN.items() if name != "PREFECT_API_URL"}
    assert job["env"].items() >= (addresses | {"AWS_ENDPOINT_URL": S3}).items()
    assert job["env"]["PREFECT_API_URL"] == os.environ["PREFECT_API_URL"]
    text = json.dumps(about)
    own = [str(ROOT), str(Path.cwd()), os.environ["HEADRACE_HOME"], str(Path.home()) + "/", CANARY]
    assert [word for word in own if word in text] == []
    if pool == "kubernetes":
        template = server.get(f"/work_pools/{told['pool']}").json()["base_job_template"]
        assert '"secretRef": {"name": "headrace"' in json.dumps(template)
