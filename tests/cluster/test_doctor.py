"""`headrace doctor`: what is wrong is found, told of by node, and comes with a cure."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest

from cluster.doctor import CHECKS, Check, Findings
from cluster.node_report import NodeReport, versions
from tests.pages import ROOT

SECRET = "canary-of-the-bucket"
OPEN = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1"}  # a cluster's Ray is not on the loopback alone


@pytest.fixture(autouse=True)
def nothing_given(fresh_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI", "RAY_ADDRESS", "HEADRACE_STORE"):
        monkeypatch.setenv(name, "")


def asked(capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit status of `headrace doctor --json`, and its checks by name."""
    from cluster.errors import StageFailed
    from flows.cli import app

    status = 0
    try:
        app(["doctor", "--json"], standalone_mode=False)
    except StageFailed:
        status = 1
    found = json.loads(capsys.readouterr().out)["checks"]
    assert all(set(check) == {"name", "ok", "why", "cure"} for check in found)
    assert all(check["cure"] for check in found if not check["ok"])
    return status, {check["name"]: check for check in found}


def test_a_bare_machine_is_ready(capfd: pytest.CaptureFixture[str], fresh_home: Path) -> None:
    status, found = asked(capfd)
    assert status == 0 and all(check["ok"] for check in found.values())
    assert str(fresh_home) in found["home"]["why"]
    assert "torch" in found["versions"]["why"]


def test_what_does_not_answer_is_told(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://no-such-host.invalid:5000")
    monkeypatch.setenv("HEADRACE_STORE", f"file://{tmp_path}/file/below")
    status, found = asked(capfd)
    assert status == 1
    assert {name for name, check in found.items() if not check["ok"]} == {"store", "names", "ports"}
    assert "NotADirectoryError" in found["store"]["why"]
    assert "AWS_SECRET_ACCESS_KEY" in found["store"]["cure"]
    assert "host of MLflow is unknown" in found["names"]["why"]
    assert "Prefect does not answer (ConnectError" in found["ports"]["why"]


@pytest.fixture
def guarded() -> Iterator[str]:
    """A server that wants a login."""

    class Guarded(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.headers["Authorization"] == "Basic dXNlcjp3b3Jk"
            self.send_response(200 if known else 401)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Guarded)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_credentials_that_are_refused_are_told(
    guarded: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", f"{guarded}/api")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", guarded)
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "user:word")
    status, found = asked(capfd)
    assert status == 1 and found["ports"]["ok"]
    assert found["credentials"]["why"] == "this machine: MLflow answers with status 401"
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "user")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "word")
    assert asked(capfd)[1]["credentials"]["ok"]


def test_a_cluster_that_is_away_is_a_failed_check(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    # Whether or not this process has joined one already.
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    status, found = asked(capfd)
    assert status == 1 and list(found) == ["ray"]
    assert "no Ray cluster answers" in found["ray"]["why"]


def node(**told: Any) -> NodeReport:
    """The report of a node that is in order."""
    fine: dict[str, Any] = {
        "host": "a",
        "address": "10.0.0.1",
        "interface": "eth0",
        "versions": versions(),
        "home": "/home/u/.headrace",
        "home_error": "",
        "sees_mark": True,
        "store_error": "",
        "resolved": {"Prefect": "10.0.0.9"},
        "services": {"Prefect": 200},
        "gpus": (),
        "gpu_error": "",
        "port": 1234,
    }
    return NodeReport(**fine | told)


def failed(told: dict[str, Any], **found: Any) -> list[Check]:
    """The checks that fail where one of two nodes tells this."""
    two = {"a": node(), "b": node(**{"address": "10.0.0.2"} | told)}
    made = [check(Findings("head:6379", two, **found)) for check in CHECKS]
    return [one for one in made if one and not one.ok]


@pytest.mark.parametrize(
    ("name", "told", "found", "why"),
    [
        ("ray", {}, {"silent": {"c": "no module named 'cluster'"}}, "c: no module"),
        ("versions", {"versions": versions() | {"torch": "1.0"}}, {}, "b: torch 1.0, here "),
        ("home", {"home_error": "PermissionError: no"}, {}, "b: PermissionError: no"),
        ("shared", {"sees_mark": False}, {}, "b: does not see this machine's home"),
        ("store", {"store_error": "NoCredentialsError: no"}, {"store": "s3://b"}, "NoCredentials"),
        ("names", {"interface": None}, {}, "b: none of its interfaces has the address 10.0.0.2"),
        ("names", {"resolved": {"Prefect": "127.0.1.1"}}, {}, "127.0.1.1, each node itself"),
        ("ports", {"services": {"Prefect": "ConnectError: no"}}, {}, "b: Prefect does not answer"),
        ("credentials", {"services": {"Prefect": 403}}, {}, "b: Prefect answers with status 403"),
        ("clock", {}, {"skews": {"a": 0.1, "b": -7.0}}, "b: -7.0 seconds"),
        ("gpus", {"gpu_error": "RuntimeError: driver"}, {}, "b: torch cannot use its GPU (Runtime"),
        ("gpus", {"gpus": ("H100",)}, {"promised": {"b": 2}}, "told of 2 GPUs, torch sees 1"),
        ("process groups", {}, {"groups": {"gloo": "b: timed out"}}, "gloo: b: timed out"),
    ],
)
def test_each_fault_of_a_node_fails_one_check(
    name: str, told: dict[str, Any], found: dict[str, Any], why: str
) -> None:
    assert failed({}) == []
    (check,) = failed(told, **found)
    assert check.name == name and why in check.why and check.cure


def test_hosts_need_a_prefect_server_that_all_of_them_reach() -> None:
    two = {name: node(address=name, services={}, resolved={}) for name in ("10.0.0.1", "10.0.0.2")}
    found = Findings("head:6379", two)
    failing = [one for check in CHECKS if (one := check(found)) and not one.ok]
    assert [(one.name, one.why[:26]) for one in failing] == [
        ("ports", "PREFECT_API_URL is not set")
    ]


def test_homes_of_their_own_are_fine_with_a_store() -> None:
    assert failed({"sees_mark": False}, store="s3://bucket/prefix") == []


CLUSTER = """
import sys
from ray.cluster_utils import Cluster
node = {"num_cpus": 1, "object_store_memory": 80_000_000}
cluster = Cluster(initialize_head=True, head_node_args=node | {"include_dashboard": False})
cluster.add_node(**node)
print(cluster.address, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def two_nodes(shared_home: Path) -> Iterator[str]:
    """The address of a cluster of two nodes on this machine, started as an administrator would."""
    process = subprocess.Popen(
        [sys.executable, "-c", CLUSTER],
        env=os.environ | OPEN,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdin and process.stdout
    yield process.stdout.readline().strip()
    process.stdin.close()
    process.wait(60)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.slow
def test_every_node_of_a_cluster_is_asked_and_secrets_reach_it_unrecorded(
    two_nodes: str, tmp_path: Path
) -> None:
    """Ray's own logs are where a secret would be found that it was given with `env_vars`."""
    given = OPEN | {"RAY_ADDRESS": two_nodes, "HEADRACE_HOME": str(tmp_path / "home")}
    given |= {"AWS_SECRET_ACCESS_KEY": SECRET, "HEADRACE_STORE": f"file://{tmp_path}/bucket"}
    code = (
        "import sys, ray; from flows.cli import app\n"
        "try: app(['doctor', '--json'], standalone_mode=False)\n"
        "finally:\n"
        "    import os\n"
        "    secret = ray.remote(lambda: os.environ['AWS_SECRET_ACCESS_KEY'])\n"
        "    print(ray.get(secret.remote()), file=sys.stderr)\n"
        "    print(ray._private.worker._global_node.get_session_dir_path(), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | given,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert found["ray"]["why"].startswith("2 nodes on 1 hosts")
    assert found["process groups"]["why"] == "all nodes sum with gloo"
    *_, secret, session = done.stderr.strip().splitlines()
    assert secret == SECRET
    logs = [path for path in Path(session).rglob("*") if path.is_file()]
    assert len(logs) > 10
    assert [path for path in logs if SECRET.encode() in path.read_bytes()] == []


DRIVER = """
import os, sys
import ray
from cluster import ray_node, ray_session
own = ray_node._has_node
answers = iter([False, False])
ray_node._has_node = lambda port: next(answers, own(port))
ray_session.start()
for _ in range(900):
    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if len(alive) == 3:
        break
    import time; time.sleep(0.2)
print(sorted(node.get("CPU", 0.0) for node in alive), flush=True)
if sys.argv[1] == "killed":
    os.kill(os.getpid(), 9)
"""


def raylets(address: str) -> int:
    port = address.rsplit(":", 1)[1]
    found = [p.info["cmdline"] or () for p in psutil.process_iter(["cmdline"])]
    return sum(any(w.startswith("--gcs-address=") and w.endswith(port) for w in c) for c in found)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["ended", "killed"])
def test_a_driver_elsewhere_is_a_node_without_cpus_meanwhile(
    two_nodes: str, tmp_path: Path, how: str
) -> None:
    """As if this machine had no node of the cluster yet."""
    given = OPEN | {"RAY_ADDRESS": two_nodes, "HEADRACE_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-c", DRIVER, how]
    before = raylets(two_nodes)
    done = subprocess.run(
        command, env=os.environ | given, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout == "[0.0, 1.0, 1.0]\n", done.stdout + done.stderr
    deadline = time.monotonic() + 60
    while raylets(two_nodes) != before:
        assert time.monotonic() < deadline, "the driver's node stays"
        time.sleep(0.5)
