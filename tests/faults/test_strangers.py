"""Other users of the machine get nothing from the local services, and would without their doors."""

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from prefect.blocks.system import Secret
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_CUSTOM_HEADERS, temporary_settings

from cluster import services
from cluster.prefect_server import client
from cluster.processes import listen
from tests.strangers import ATTACKS, Attack, as_stranger

DOORLESS = (
    "import sys; from cluster import guard, {module}; guard.Guard = lambda app, url: app; "
    "from cluster import mlflow_artifacts; mlflow_artifacts.confine = print; "
    "{module}.main(*sys.argv[1:])"
)


class Pair(NamedTuple):
    """The addresses of a Prefect server with a worker, and of an MLflow server."""

    prefect: str
    mlflow: str


@pytest.fixture(scope="module")
def ours(shared_home: Path) -> Pair:
    """The services of the test run."""
    up = services.up(wait_for_mlflow=True)
    Secret(value="a secret value").save("private", overwrite=True)
    return Pair(up.prefect_ui, str(up.mlflow_ui))


@pytest.fixture(scope="module")
def doorless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """The same services in a home of their own, without guard and with a worker of Prefect's."""
    folder, started, urls = tmp_path_factory.mktemp("doorless"), [], []
    variables = dict(os.environ, HEADRACE_HOME=str(folder), PREFECT_HOME=str(folder / "prefect"))
    variables |= {"MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow/mlflow.db"}
    for module in ("prefect_process", "mlflow_server"):
        listening = listen(0)
        port, handle = listening.getsockname()[1], listening.fileno()
        command = [sys.executable, "-c", DOORLESS.format(module=module), str(port), str(handle)]
        started.append(subprocess.Popen(command, env=variables, pass_fds=(handle,)))
        urls.append(f"http://127.0.0.1:{port}")
        listening.close()
    api = {PREFECT_API_URL: f"{urls[0]}/api", PREFECT_CLIENT_CUSTOM_HEADERS: {}}
    with temporary_settings(api):
        while not all(map(services.answers, services.HEALTH, urls)):
            assert all(server.poll() is None for server in started)
        Secret(value="a secret value").save("private", overwrite=True)
        with client() as server:
            server.create_work_pool(WorkPoolCreate(name="headrace", type="process"))
    worker = [sys.executable, "-m", "prefect", "worker", "start", "--pool", "headrace"]
    started.append(subprocess.Popen(worker, env=variables | {"PREFECT_API_URL": f"{urls[0]}/api"}))
    yield Pair(*urls)
    for process in reversed(started):
        process.terminate()
        process.wait()


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A folder that no other user may look into."""
    tmp_path.chmod(0o700)
    (tmp_path / "key").write_text("a private key")
    return tmp_path


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_stranger_gets_nothing(ours: Pair, private: Path, attack: Attack) -> None:
    assert as_stranger(partial(attack, *ours, private)) == ""
    assert [path.name for path in private.iterdir()] == ["key"]


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_stranger_would_get_it_without_the_doors(
    doorless: Pair, private: Path, attack: Attack
) -> None:
    """Else the tests above could not fail."""
    got = as_stranger(partial(attack, *doorless, private))
    assert got or (private / "planted").exists()
