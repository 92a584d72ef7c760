"""Three hosts without a shared disk, as the documentation's page on clusters has them: PostgreSQL,
S3, Prefect and MLflow between them, all behind passwords. The whole pipeline, then a training whose
host is lost for good.

Needs root, iproute2 and what `cluster_services` needs.
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.end_to_end.cluster_services import BIN, POSTGRES, bucket, services
from tests.end_to_end.hosts import GATEWAY, Host, hosts, plain

TRAINED = ("--set", "placement.workers=2", "--set", "placement.checkpoint_seconds=0.5")
WANTED = os.geteuid() == 0 and shutil.which("ip") and shutil.which("setpriv") and POSTGRES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not WANTED, reason="needs root, iproute2 and PostgreSQL"),
]


class Cluster(NamedTuple):
    """Hosts in one Ray cluster, the first its head, and the variables that name their services."""

    hosts: list[Host]
    addresses: dict[str, str]

    def headrace(self, log: Path, *arguments: str) -> "subprocess.Popen[str]":
        """A command, on the first host."""
        head = self.hosts[0]
        variables = self.addresses | {
            "RAY_ADDRESS": f"{head.address}:6379",
            "HEADRACE_HOME": f"{head.folder}/home",
        }
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": log.open("w")}
        return head.start([str(BIN / "headrace"), *arguments, "--json"], variables, **pipes)

    @property
    def root(self) -> Path:
        """The first host's files."""
        return Path(f"/proc/{self.hosts[0].pid}/root")


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three hosts of one core."""
    for module in ("moto", "s3fs", "boto3", "psycopg2"):
        pytest.importorskip(module)
    own = Path("/run/headrace-test")  # short: Ray opens sockets below it
    with (
        hosts(3, own) as found,
        services(GATEWAY, tmp_path_factory.mktemp("services")) as addresses,
    ):
        for host in found:
            _join(host, found[0], addresses)
        yield Cluster(found, addresses)


def _join(host: Host, head: Host, addresses: dict[str, str]) -> None:
    where = (
        ["--head", "--port=6379", f"--temp-dir={host.folder}/ray", "--include-dashboard=false"]
        if host is head
        else [f"--address={head.address}:6379"]
    )
    command = [str(BIN / "ray"), "start", *where, f"--node-ip-address={host.address}"]
    command += ["--num-cpus=1", "--object-store-memory=100000000", "--disable-usage-stats"]
    told = host.start(command, addresses, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output, _ = told.communicate(timeout=120)
    assert told.returncode == 0, output


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., dict[str, Any]]]:
    """Carries out a command on one host, with nothing beside it."""
    folder = tmp_path_factory.mktemp("alone")
    here = plain() | {"HEADRACE_HOME": str(folder / "home")}

    def headrace(*arguments: str) -> dict[str, Any]:
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": (folder / "log").open("w")}
        command = [BIN / "headrace", *arguments, "--json"]
        return _ended(subprocess.Popen(command, env=here, text=True, **pipes), folder / "log")

    yield headrace
    subprocess.run([BIN / "headrace", "down"], env=here, check=True)


def _ended(running: "subprocess.Popen[str]", log: Path) -> dict[str, Any]:
    output, _ = running.communicate(timeout=1500)
    assert running.returncode == 0, f"{output[-2000:]}\n{log.read_text()[-5000:]}"
    found: dict[str, Any] = json.loads(output)
    return found


def _losses(done: dict[str, Any], root: Path = Path("/")) -> list[float]:
    """The loss of every step of a run's pretraining."""
    (made,) = [s for s in done["stages"] if s["name"] == "pretrain"]
    rows = root / made["artifact"].lstrip("/") / "metrics.jsonl"
    return [json.loads(row)["loss"] for row in rows.read_text().splitlines()]


def test_all_is_ready(three: Cluster, tmp_path: Path) -> None:
    log = tmp_path / "log"
    found = _ended(three.headrace(log, "doctor"), log)
    assert [one for one in found["checks"] if not one["ok"]] == []
    said = {one["name"]: one["why"] for one in found["checks"]}
    assert said["ray"].startswith("3 nodes on 3 hosts")
    assert "each node's" in said["shared"]


def test_the_whole_pipeline_runs_as_on_one_host(
    three: Cluster, alone: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    one, done = alone("run", "smoke"), _ended(three.headrace(log, "run", "smoke"), log)
    assert {s["state"] for s in done["stages"]} == {"built"}
    assert _losses(done, three.root) == _losses(one)
    scores = ("bits_per_byte", "accuracy", "accuracy_majority")
    assert [done["metrics"][name] for name in scores] == [one["metrics"][name] for name in scores]
    assert done["urls"]["prefect"].startswith(f"http://{GATEWAY}:4299")
    assert done["urls"]["mlflow"].startswith(f"http://{GATEWAY}:5099")


def test_no_secret_is_in_a_command_line(three: Cluster, tmp_path: Path) -> None:
    log = tmp_path / "log"
    running = three.headrace(log, "run", "smoke", "--rebuild", "classify")
    hidden = [v for k, v in three.addresses.items() if "SECRET" in k or "AUTH_STRING" in k]
    seen: set[str] = set()
    while running.poll() is None:
        for line in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                text = line.read_text()
            except OSError:
                continue
            seen |= {secret for secret in hidden if secret in text}
        time.sleep(0.5)
    _ended(running, log)
    assert not seen


def test_a_training_survives_its_host_without_a_shared_disk(
    three: Cluster, alone: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """Of three hosts, two train; one of these goes away for good, and the third takes its place:
    the losses are those of one host with as many workers.
    """
    training = ("pretrain", "smoke", "--rebuild", "pretrain", *TRAINED)
    one = alone(*training)
    log = tmp_path / "log"
    work = "headrace/store/work/pretrain-*/checkpoints/*/checkpoint.json"
    shared = bucket(three.addresses)
    running = three.headrace(log, *training)
    while not shared.glob(work):
        assert running.poll() is None, log.read_text()[-5000:]
        time.sleep(0.2)
    lost = next(host for host in three.hosts[1:] if host.runs("RayTrainWorker"))
    lost.kill()
    print(f"{lost.name} is lost after {shared.glob(work)}")
    assert _losses(_ended(running, log), three.root) == _losses(one)
