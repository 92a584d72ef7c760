"""`headrace deploy`: what a deployment is on the server; containers get no path and no secret."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from cluster import deployments, services
from cluster.errors import BadInput
from flows.cli import app
from flows.recipe import Recipe
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


def test_a_time_that_is_none_is_refused(
    fresh_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BadInput, match="--cron '3 am' is no time in cron form: minute, hour"):
        app(["deploy", "smoke", "--cron", "3 am"], standalone_mode=False)


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
        ({}, ["--image", "i", "--set", "sources=['mine/a{date}.txt']"], "mine/.*txt is a path"),
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
    (tmp_path / "mine" / "a2026-03-01.txt").touch()
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


def deployed(server: httpx.Client, capfd: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    """What the server knows of a deployment that nothing runs."""
    deploy("--pool", "docker", "--image", "headrace:1", *more)
    told = json.loads(capfd.readouterr().out)
    return server.get(f"/deployments/name/{told['deployment']}").json()


def test_a_deployment_runs_once_at_a_time_in_the_queue_of_its_devices(
    server: httpx.Client, capfd: pytest.CaptureFixture[str]
) -> None:
    one = deployed(server, capfd)
    assert (one["global_concurrency_limit"]["limit"], one["work_queue_name"]) == (1, "cpu")
    assert one["concurrency_options"]["collision_strategy"] == "ENQUEUE"
    asked = ("--overlap", "cancel", "--tag", "nightly", "--retries", "2", "--retry-delay", "600")
    other = deployed(server, capfd, *asked, "--set", "placement.gpus=1")
    server.delete(f"/deployments/{other['id']}").raise_for_status()
    assert other["id"] == one["id"] and other["tags"] == ["nightly"]
    assert other["work_queue_name"] == "gpu"
    assert other["concurrency_options"]["collision_strategy"] == "CANCEL_NEW"
    assert other["parameters"]["overrides"] == ["placement.gpus=1"]
    variables = other["job_variables"]["env"]
    assert variables["PREFECT_FLOWS_DEFAULT_RETRIES"] == "2"
    assert variables["PREFECT_FLOWS_DEFAULT_RETRY_DELAY_SECONDS"] == "600.0"


def test_the_form_has_the_order_of_the_recipe_and_says_what_each_field_is(
    server: httpx.Client, capfd: pytest.CaptureFixture[str]
) -> None:
    one = deployed(server, capfd)
    server.delete(f"/deployments/{one['id']}").raise_for_status()
    schema = one["parameter_openapi_schema"]
    asked = schema["properties"]
    assert sorted(asked, key=lambda name: asked[name]["position"]) == [
        "goal",
        "rebuild",
        "overrides",
        "date",
        "recipe",
    ]
    assert all(about["description"] for about in asked.values())
    fields = schema["definitions"]["Recipe"]["properties"]
    assert sorted(fields, key=lambda name: fields[name]["position"]) == list(Recipe.model_fields)


def test_a_backfill_is_a_run_for_each_day(
    server: httpx.Client, capfd: pytest.CaptureFixture[str]
) -> None:
    days = ("--from", "2026-02-27", "--to", "2026-03-01", "--json")
    one = deployed(server, capfd)
    with pytest.raises(BadInput, match="every day is the same"):
        app(["backfill", "smoke", *days], standalone_mode=False)
    capfd.readouterr()
    path = "s3://b/{date-1:%Y/%m}/{date}.jsonl"
    one = deployed(server, capfd, "--set", f"sources=[{{path: '{path}'}}]")
    app(["backfill", "smoke", *days], standalone_mode=False)
    told = json.loads(capfd.readouterr().out)
    runs = [server.get(f"/flow_runs/{run['id']}").json() for run in told["runs"]]
    server.delete(f"/deployments/{one['id']}").raise_for_status()
    assert [run["parameters"]["date"] for run in runs] == ["2026-02-27", "2026-02-28", "2026-03-01"]
    assert {run["deployment_id"] for run in runs} == {one["id"]}
    with pytest.raises(BadInput, match="headrace deploy smoke --cron"):
        app(["backfill", "smoke", *days], standalone_mode=False)


def test_a_recipe_of_a_day_looks_for_that_days_files(
    fresh_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_STORE", "")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    dated = f"sources=[{{path: '{tmp_path}/{{date-1:%Y/%m}}/{{date}}.txt'}}]"
    with pytest.raises(BadInput, match=r"2026/02/2026-03-01\.txt"):
        app(["plan", "smoke", "--set", dated, "--date", "2026-03-01"], standalone_mode=False)
