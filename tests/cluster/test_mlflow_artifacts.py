"""MLflow's server keeps to the artifacts of the home, even for who has its password."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from cluster import services
from cluster.keys import authorization

API = "/api/2.0/mlflow"


@pytest.fixture(scope="module")
def mlflow(shared_home: Path) -> Iterator[httpx.Client]:
    """The server of the test run, asked with its password."""
    url = services.up(wait_for_mlflow=True).mlflow_ui
    headers = {"Authorization": authorization(str(url))}
    with httpx.Client(base_url=str(url), headers=headers, timeout=60) as client:
        yield client


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A folder of the user outside of the home."""
    (tmp_path / "key").write_text("a private key")
    return tmp_path


def new_run(mlflow: httpx.Client, name: str, **about: str) -> dict[str, Any]:
    """Make an experiment and a run in it; what MLflow tells of the run."""
    made = mlflow.post(f"{API}/experiments/create", json={"name": name, **about})
    assert made.status_code == 200, made.text
    run = mlflow.post(f"{API}/runs/create", json={"experiment_id": made.json()["experiment_id"]})
    return run.json()["run"]["info"]


@pytest.mark.parametrize(
    "place",
    ["file:///", "{private}", "file://{private}", "../..", "file:{private}/%2e%2e", "s3://b/x"],
)
@pytest.mark.parametrize("field", ["artifact_location", "artifactLocation"])
def test_no_experiment_is_made_elsewhere(
    mlflow: httpx.Client, private: Path, place: str, field: str
) -> None:
    body = {"name": str(private), field: place.format(private=private)}
    refused = mlflow.post(f"{API}/experiments/create", json=body)
    assert (refused.status_code, "in the home alone" in refused.text) == (400, True)


def test_one_that_is_elsewhere_all_the_same_shows_and_takes_nothing(
    mlflow: httpx.Client, shared_home: Path, private: Path
) -> None:
    """As an earlier version, or another program, may have made it."""
    run = new_run(mlflow, str(private))
    with sqlite3.connect(shared_home / "mlflow" / "mlflow.db", timeout=60) as store:
        where = (f"file://{private}", run["run_id"])
        store.execute("update runs set artifact_uri = ? where run_uuid = ?", where)
    assert_closed(mlflow, run["run_id"], private)


def test_a_symbolic_link_does_not_lead_out(
    mlflow: httpx.Client, shared_home: Path, private: Path
) -> None:
    run = new_run(mlflow, f"link {private}")
    folder = (
        shared_home / "mlflow" / run["artifact_uri"].replace("mlflow-artifacts:/", "artifacts/")
    )
    folder.parent.mkdir(parents=True)
    folder.symlink_to(private)
    assert_closed(mlflow, run["run_id"], private)
    folder.unlink()
    folder.mkdir()
    for name in ("key", "traces.json"):
        (folder / name).symlink_to(private / "key")
    assert_closed(mlflow, run["run_id"], private)


def assert_closed(mlflow: httpx.Client, run: str, private: Path) -> None:
    """Nothing in the folder that a run's artifacts seem to be is read, listed, written, removed."""
    shown = [
        mlflow.get("/get-artifact", params={"path": "key", "run_uuid": run}),
        mlflow.get(f"{API}/artifacts/list", params={"run_id": run}),
    ]
    assert not any("a private key" in reply.text for reply in shown)
    upload = {"run_uuid": run, "path": "planted"}
    mlflow.post("/ajax-api/2.0/mlflow/upload-artifact", params=upload, content=b"planted")
    assert [path.name for path in private.iterdir()] == ["key"]


@pytest.mark.parametrize("dots", ["..", "%2e%2e", "%252e%252e", "..%2f..", "/"])
def test_no_path_climbs_out(mlflow: httpx.Client, shared_home: Path, dots: str) -> None:
    key = (shared_home / "service_key").read_text()
    run = new_run(mlflow, f"climb {dots}")
    up = "/".join([dots] * 6)
    asked = [
        f"/get-artifact?run_uuid={run['run_id']}&path={up}/service_key",
        f"/get-artifact?run_uuid={run['run_id']}&path={shared_home}/service_key",
        f"/get-artifact?run_uuid={run['run_id']}&path=file:{quote(str(shared_home))}/service_key",
        f"/api/2.0/mlflow-artifacts/artifacts/{dots}/{dots}/service_key",
        f"/ajax-api/2.0/mlflow-artifacts/artifacts/{dots}/{dots}/service_key",
        f"/api/2.0/mlflow-artifacts/artifacts?path={dots}/{dots}",
        f"/static-files/{up}{shared_home}/service_key",
    ]
    for path in asked:
        reply = mlflow.get(path)
        assert key not in reply.text and "ray_token" not in reply.text, path


def test_no_model_version_has_its_source_elsewhere(mlflow: httpx.Client, private: Path) -> None:
    name = f"model-{private.name}"
    assert mlflow.post(f"{API}/registered-models/create", json={"name": name}).status_code == 200
    for source in (f"file://{private}", str(private), "mlflow-artifacts:/../../..", "s3://b/x"):
        body = {"name": name, "source": source}
        made = mlflow.post(f"{API}/model-versions/create", json=body)
        shown = mlflow.get(
            "/model-versions/get-artifact", params={"name": name, "version": 1, "path": "key"}
        )
        assert "a private key" not in shown.text, made.text


@pytest.mark.parametrize("folder", ["{private}", "file://{private}", "{home}/link"])
def test_the_folder_is_open_to_mlflow_and_closed_to_its_server(
    fresh_home: Path, private: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow.exceptions import MlflowException
    from mlflow.store.artifact import artifact_repository_registry as registry

    from cluster import mlflow_artifacts

    (mlflow_artifacts.artifacts() / "link").symlink_to(private)
    place = folder.format(private=private, home=mlflow_artifacts.artifacts())
    known = registry._artifact_repository_registry
    monkeypatch.setattr(known, "_registry", dict(known._registry))
    opened = registry.get_artifact_repository(place)
    assert Path(opened.download_artifacts("key")).read_text() == "a private key"
    sending = Thread(target=lambda: sent.append(registry.get_artifact_repository(place)))
    sent: list[Any] = []
    monkeypatch.setattr(mlflow_artifacts.stores, "register", lambda *_: None)
    mlflow_artifacts.confine(sending)
    with pytest.raises(MlflowException, match="is not below"):
        registry.get_artifact_repository(place)
    sending.start()
    sending.join()
    assert Path(sent[0].download_artifacts("key")).read_text() == "a private key"
