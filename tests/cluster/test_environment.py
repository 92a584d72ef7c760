import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cluster import environment, services
from cluster.errors import BadInput


@pytest.fixture(autouse=True)
def _restore(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PREFECT_HOME", "MLFLOW_TRACKING_URI", "RAY_AUTH_TOKEN_PATH", "RAY_ADDRESS"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(environment, "_ours", dict(environment._ours))


def test_all_state_lies_in_the_home_and_follows_it(
    fresh_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment.prepare()
    assert os.environ["PREFECT_HOME"] == str(fresh_home / "prefect")
    assert os.environ["MLFLOW_TRACKING_URI"] == f"sqlite:///{fresh_home}/mlflow/mlflow.db"
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "other"))
    environment.prepare()
    assert os.environ["PREFECT_HOME"] == str(tmp_path / "other" / "prefect")
    assert environment.given("MLFLOW_TRACKING_URI") is None


def test_what_the_user_has_set_stays(fresh_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracking:5000")
    monkeypatch.setenv("PREFECT_LOGGING_EXTRA_LOGGERS", "mine")
    environment.prepare()
    environment.prepare()
    assert environment.given("MLFLOW_TRACKING_URI") == "http://tracking:5000"
    assert os.environ["PREFECT_LOGGING_EXTRA_LOGGERS"] == "mine"


def test_the_server_of_the_users_prefect_profile_is_used(
    fresh_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiles = tmp_path / "profiles.toml"
    profiles.write_text(
        'active = "ours"\n'
        '[profiles.ours]\nPREFECT_API_URL = "http://127.0.0.1:9/api"\nPREFECT_API_KEY = "k"\n'
        '[profiles.other]\nPREFECT_LOGGING_LEVEL = "DEBUG"\n'
    )
    monkeypatch.setenv("PREFECT_PROFILES_PATH", str(profiles))
    for name in ("PREFECT_API_URL", "PREFECT_API_KEY", "PREFECT_PROFILE"):
        monkeypatch.setenv(name, "")
    with pytest.raises(BadInput, match=r"PREFECT_API_URL is http://127\.0\.0\.1:9/api.*profile"):
        services.up()
    assert services.alive("prefect") is None, "no second server beside the user's"
    assert environment.worker_variables()["PREFECT_API_KEY"] == "k"
    monkeypatch.setenv("PREFECT_API_URL", "")
    monkeypatch.setenv("PREFECT_PROFILE", "other")
    environment.prepare()
    assert not os.environ["PREFECT_API_URL"]
    profiles.write_text("active = ")
    with pytest.raises(BadInput, match=r"profiles\.toml, your Prefect profiles, cannot be read"):
        environment.prepare()


def test_d03_the_ray_token_is_private_and_stays_the_same(fresh_home: Path) -> None:
    environment.prepare()
    token = fresh_home / "ray_token"
    first = token.read_text()
    environment.prepare()
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert len(first) == 64
    assert token.read_text() == first


def test_ray_of_another_cluster_keeps_its_own_authentication(
    fresh_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    environment.prepare()
    assert not (fresh_home / "ray_token").exists()
    assert "DS_ACCELERATOR" not in environment.worker_variables()


def test_d24_workers_get_addresses_credentials_and_the_offs(
    fresh_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment.prepare()
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:4200/api")
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "user:word")
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    passed = environment.worker_variables()
    assert passed["PREFECT_API_AUTH_STRING"] == "user:word"
    assert passed["PREFECT_SERVER_EPHEMERAL_ENABLED"] == "false"
    assert passed["DO_NOT_TRACK"] == passed["OMP_NUM_THREADS"] == "1"
    assert passed["HEADRACE_HOME"] == str(fresh_home)
    assert "PATH" not in passed


def test_workers_get_what_stores_and_networks_need(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_REGION", "GLOO_SOCKET_IFNAME", "MINE_X", "MINE_Y"):
        monkeypatch.setenv(name, "v")
    names = ("AWS_SECRET_ACCESS_KEY", "AWS_REGION", "GLOO_SOCKET_IFNAME")
    assert environment.worker_variables().keys() > {*names}
    assert "MINE_X" not in environment.worker_variables()
    monkeypatch.setenv("HEADRACE_PASS", "AWS_, MINE_X")
    passed = environment.worker_variables().keys()
    assert passed > {"AWS_REGION", "MINE_X"}
    assert not passed & {"GLOO_SOCKET_IFNAME", "MINE_Y"}


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("AWS_SECRET_ACCESS_KEY", "x", True),
        ("HF_TOKEN", "x", True),
        ("PREFECT_API_AUTH_STRING", "user:x", True),
        ("HEADRACE_JUDGE_API_KEY", "x", True),
        ("MLFLOW_TRACKING_URI", "https://user:x@host/", True),
        ("MLFLOW_TRACKING_URI", "http://host:5000/a@b", False),
        ("AWS_ENDPOINT_URL", "http://s3:9000", False),
    ],
)
def test_secrets_are_told_from_settings(name: str, value: str, secret: bool) -> None:
    assert environment.is_secret(name, value) is secret


@pytest.mark.parametrize("module", ["services", "environment", "tracking", "mlflow_tracking"])
def test_light_modules_import_no_heavy_library(module: str) -> None:
    heavy = {"prefect", "ray", "mlflow", "torch", "numpy", "pyarrow", "deepspeed"}
    code = f"import sys, cluster.{module}; print(*{heavy} & set(sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == []
