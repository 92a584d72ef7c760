"""Three hosts without a shared disk, S3 between them; one is lost for good during a training.

Needs root, iproute2, s3fs (extra `s3`) and moto's S3 server: `uv pip install "moto[server]"`.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.hosts import GATEWAY, Host, hosts, plain

CODE, BIN = Path(__file__).parents[2], Path(sys.executable).parent
TRAINED = ["--set", "placement.workers=2", "--set", "placement.checkpoint_seconds=0.5"]
S3, PREFECT = f"http://{GATEWAY}:5555", f"http://{GATEWAY}:4299/api"
SHARED = {
    "HEADRACE_STORE": "s3://headrace/store",
    "AWS_ENDPOINT_URL": S3,
    "AWS_ACCESS_KEY_ID": "one",
    "AWS_SECRET_ACCESS_KEY": "two",
    "AWS_DEFAULT_REGION": "us-east-1",
    "GLOO_SOCKET_IFNAME": "eth0",
    "RAY_AUTH_MODE": "disabled",
    "PREFECT_API_URL": PREFECT,
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="needs root, iproute2"),
]


@contextlib.contextmanager
def served(command: list[str], url: str, folder: Path) -> Iterator[None]:
    """A service on the machine itself, reached by all hosts."""
    import httpx

    with (folder / f"{Path(command[0]).name}.log").open("w") as log:
        variables = SHARED | {"PREFECT_HOME": str(folder / "prefect"), "HOME": str(folder)}
        service = subprocess.Popen(
            command, env=plain() | variables, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            while True:
                with contextlib.suppress(httpx.HTTPError):
                    httpx.get(url)
                    break
                assert service.poll() is None, Path(log.name).read_text()
                time.sleep(0.2)
            yield
        finally:
            service.terminate()
            service.wait()


@pytest.fixture
def three(tmp_path: Path) -> Iterator[list[Host]]:
    """Three hosts of one core, in one Ray cluster, with an S3 and a Prefect server beside them."""
    pytest.importorskip("moto")
    s3fs = pytest.importorskip("s3fs")
    own = Path("/run/headrace-test")  # short: Ray opens sockets below it
    with hosts(3, own) as found, contextlib.ExitStack() as stack:
        moto = [str(BIN / "moto_server"), "-H", GATEWAY, "-p", "5555"]
        stack.enter_context(served(moto, S3, tmp_path))
        prefect = [str(BIN / "prefect"), "server", "start", "--host", GATEWAY, "--port", "4299"]
        stack.enter_context(served(prefect, f"{PREFECT}/health", tmp_path))
        s3fs.S3FileSystem(endpoint_url=S3, key="one", secret="two").mkdir("headrace")
        for host in found:
            _join(host, found[0])
        yield found


def _join(host: Host, head: Host) -> None:
    where = (
        ["--head", "--port=6379", f"--temp-dir={host.folder}/ray", "--include-dashboard=false"]
        if host is head
        else [f"--address={head.address}:6379"]
    )
    command = [str(BIN / "ray"), "start", *where, f"--node-ip-address={host.address}"]
    command += ["--num-cpus=1", "--object-store-memory=100000000", "--disable-usage-stats"]
    told = host.start(command, SHARED, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output, _ = told.communicate(timeout=120)
    assert told.returncode == 0, output


def _run(folder: Path, *arguments: str, host: Host | None = None) -> subprocess.Popen[str]:
    command = [str(BIN / "headrace"), "pretrain", "smoke", "--json", *TRAINED, *arguments]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": (folder / "log").open("w")}
    if host:
        variables = SHARED | {
            "RAY_ADDRESS": "10.78.0.11:6379",
            "HEADRACE_HOME": f"{host.folder}/home",
        }
        return host.start(command, variables, **pipes)
    here = plain() | {"HEADRACE_HOME": str(folder / "home")}
    return subprocess.Popen(command, env=here, text=True, **pipes)


def _losses(done: subprocess.Popen[str], log: Path, root: Path = Path("/")) -> list[float]:
    """The loss of every step of a run that has ended well."""
    output, _ = done.communicate(timeout=1500)
    assert done.returncode == 0, f"{output[-2000:]}\n{log.read_text()[-5000:]}"
    (made,) = [s for s in json.loads(output)["stages"] if s["name"] == "pretrain"]
    rows = root / made["artifact"].lstrip("/") / "metrics.jsonl"
    return [json.loads(row)["loss"] for row in rows.read_text().splitlines()]


def _checkpoints() -> list[str]:
    import s3fs

    files = s3fs.S3FileSystem(
        endpoint_url=S3,
        key="one",
        secret="two",
        use_listings_cache=False,
    )
    return files.glob("headrace/store/work/pretrain-*/checkpoints/*/checkpoint.json")


def test_a_training_survives_its_host_without_a_shared_disk(
    three: list[Host], tmp_path: Path
) -> None:
    """Of three hosts, two train; one of these goes away for good, and the third takes its place:
    the losses are those of one host.
    """
    alone = tmp_path / "alone"
    alone.mkdir()
    expected = _losses(_run(alone), alone / "log")
    subprocess.run([BIN / "headrace", "down", "--home", alone / "home"], check=True)
    logs = tmp_path / "driver"
    logs.mkdir()
    head = three[0]
    inside = Path(f"/proc/{head.pid}/root")
    running = _run(logs, host=head)
    while not _checkpoints():
        assert running.poll() is None, (logs / "log").read_text()[-5000:]
        time.sleep(0.2)
    lost = next(host for host in three[1:] if host.runs("RayTrainWorker"))
    lost.kill()
    print(f"{lost.name} is lost after {_checkpoints()}")
    assert _losses(running, logs / "log", inside) == expected
