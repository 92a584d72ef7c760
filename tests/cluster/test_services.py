import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cluster import named_servers, processes, services
from cluster.errors import BadInput
from cluster.keys import authorization
from cluster.processes import Process, spawn, stop


@pytest.fixture
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI", "RAY_ADDRESS"):
        monkeypatch.setenv(name, "")


def this_process() -> Process:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return Process(pid=os.getpid(), boot=boot, started=processes.start_time(os.getpid()) or 0)


def test_two_processes_at_once_start_one_server(shared_home: Path) -> None:
    services.down()
    code = "from cluster.services import up; print(up().prefect_ui)"
    starts = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    urls = {start.communicate()[0].strip() for start in starts}
    record = json.loads((shared_home / "services.json").read_text())["prefect"]
    assert urls == {record["url"]}
    assert services.up().prefect_ui == record["url"]
    servers = [
        p.parent.name
        for p in Path("/proc").glob("[0-9]*/environ")
        if f"PREFECT_HOME={shared_home}/prefect" in _read(p)
        and "-m\0cluster.prefect_process" in _read(p.parent / "cmdline")
    ]
    assert servers == [str(record["pid"])]


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""


def test_status_tells_url_pid_and_health(shared_home: Path) -> None:
    up = services.up(wait_for_mlflow=True)
    status = services.status()
    assert set(status) == {"prefect", "mlflow", "ray"}
    assert all(set(entry) == {"url", "pid", "healthy"} for entry in status.values())
    assert status["prefect"]["url"] == up.prefect_ui
    assert status["mlflow"]["url"] == up.mlflow_ui
    assert [entry["healthy"] for entry in status.values()] == [True, True, True]
    assert os.getpgid(status["prefect"]["pid"]) == status["prefect"]["pid"]


def test_mlflow_serves_no_assistant(shared_home: Path) -> None:
    """It would run shell commands for whoever opens the page."""
    url = str(services.up(wait_for_mlflow=True).mlflow_ui)
    for page in ("config", "providers", "message"):
        asked = urllib.request.Request(
            f"{url}/ajax-api/3.0/mlflow/assistant/{page}",
            data=b"{}" if page == "message" else None,
            headers={"Authorization": authorization(url)},
        )
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(asked, timeout=60).close()


def test_d01_servers_listen_on_the_loopback(shared_home: Path) -> None:
    up = services.up(wait_for_mlflow=True)
    for url in (up.prefect_ui, up.mlflow_ui):
        port = f"{int(str(url).rsplit(':', 1)[1]):04X}"
        listening = [line.split() for line in _read(Path("/proc/net/tcp")).splitlines()[1:]]
        addresses = {f[1] for f in listening if f[3] == "0A" and f[1].endswith(f":{port}")}
        assert addresses == {f"0100007F:{port}"}


@contextlib.contextmanager
def answering(status: int) -> Iterator[str]:
    """The address of a server that answers everything with one status, whatever it is."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("status", [200, 401])
def test_what_the_user_names_is_used_and_not_started(
    fresh_home: Path,
    no_variables: None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    status: int,
) -> None:
    named_servers.tell_of_mlflow.cache_clear()
    with answering(status) as address:
        _use(address, monkeypatch)
    told = [line for line in caplog.messages if "MLFLOW_TRACKING_URI" in line]
    assert len(told) == 1 and "is kept, and sent when a server does" in told[0]


def _use(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", f"{address}/api")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://mlflow.example:2")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    started: list[str] = []
    monkeypatch.setattr(services, "spawn", lambda name, *a: started.append(name) or this_process())
    up = services.up()
    assert (up.prefect_ui, up.mlflow_ui) == (
        address,
        "http://mlflow.example:2",
    )
    assert started == ["mlflow"]  # the sender of journals; it serves nothing
    monkeypatch.setattr(services, "answers", lambda name, url, ours: not ours)
    assert services.status()["prefect"] == {"url": up.prefect_ui, "pid": None, "healthy": True}
    assert services.status()["ray"] == {"url": "127.0.0.1:1", "pid": None, "healthy": False}


@pytest.mark.parametrize("whose", ["the user's", "another server's", "of another home"])
def test_a_server_of_the_user_gets_no_password_of_ours(
    fresh_home: Path, no_variables: None, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    """A parent process may have left one in the environment, for this server or another."""
    monkeypatch.setattr(services, "spawn", lambda name, *a: this_process())
    with answering(200) as address:
        of = "http://127.0.0.1:4200" if whose == "another server's" else address
        word = "Bearer mine" if whose == "the user's" else authorization(of)
        monkeypatch.setenv(services.HEADERS, json.dumps({"Authorization": word, "For": of}))
        monkeypatch.setenv("PREFECT_API_URL", f"{address}/api")
        services.up()
    assert (services.HEADERS in os.environ) is (whose != "another server's")


def test_what_the_user_names_and_is_away_is_told_at_once(
    fresh_home: Path, no_variables: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "spawn", lambda name, *a: pytest.fail("starts a service"))
    for wrong in ("http://127.0.0.1:9/api", "127.0.0.1:9", "http://127.0.0.1:99999/api"):
        monkeypatch.setenv("PREFECT_API_URL", wrong)
        with pytest.raises(BadInput, match=f"PREFECT_API_URL is {wrong}.*unset PREFECT_API_URL"):
            services.up()
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    with pytest.raises(BadInput, match=r"RAY_ADDRESS is 127.0.0.1:9.*unset RAY_ADDRESS"):
        named_servers.check_ray()
    with answering(404) as other:
        monkeypatch.setenv("PREFECT_API_URL", f"{other}/api")
        with pytest.raises(BadInput, match=r"no Prefect server answers .*404"):
            services.up()
        monkeypatch.setenv("RAY_ADDRESS", other.removeprefix("http://"))
        with pytest.raises(BadInput, match="where no Ray cluster answers"):
            named_servers.check_ray()


@pytest.mark.parametrize(
    ("variable", "instead"),
    [("PREFECT_API_URL", "PREFECT_API_AUTH_STRING"), ("MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_U")],
)
def test_d16_an_address_of_a_server_with_a_login_is_refused(
    variable: str,
    instead: str,
    fresh_home: Path,
    no_variables: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Records and pages have links to it."""
    monkeypatch.setattr(services, "spawn", lambda name, *a: this_process())
    for url in ("http://me:CANARY@127.0.0.1:9", "http://CANARY@127.0.0.1:9/api"):
        monkeypatch.setenv(variable, url)
        for asked in (services.up, services.status, services.sign_in):
            with pytest.raises(BadInput, match=f"leave the login out, and set {instead}") as told:
                asked()
            assert "CANARY" not in str(told.value)


def test_another_tracking_store_gets_a_process_of_its_own(
    fresh_home: Path, no_variables: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that runs may show another's runs, or lack the credentials."""
    ended: list[str] = []
    monkeypatch.setattr(services, "spawn", lambda name, *a: this_process())
    monkeypatch.setattr(services, "stop", lambda process: ended.append(str(process.store)))
    monkeypatch.setattr(services, "check_prefect", lambda: None)
    monkeypatch.setenv("PREFECT_API_URL", "http://prefect.example/api")
    for uri in ("", "", "sqlite:////tmp/other.db", "sqlite:////tmp/other.db", ""):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        services.up()
    assert ended == ["None", "sqlite:////tmp/other.db"]


def test_a_lost_or_damaged_record_is_made_again_from_what_runs(
    fresh_home: Path, no_variables: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "import time; time.sleep(100)"
    monkeypatch.setattr(services, "COMMANDS", {"prefect": ("-c", script)})
    runs = spawn("prefect", [sys.executable, "-c", script, "4321", "7"], {})
    for damaged in ("{", "[1, 2]", '{"prefect": {"pid": "x"}}', None):
        path = fresh_home / "services.json"
        path.unlink(missing_ok=True) if damaged is None else path.write_text(damaged)
        services._recover()
        found = services._read()["prefect"]
        assert (found.pid, found.started) == (runs.pid, runs.started)
        assert (found.url, found.alive) == ("http://127.0.0.1:4321", True)
    stop(runs)


def test_what_a_dead_service_leaves_behind_is_ended(fresh_home: Path) -> None:
    child = "import time; print('here', flush=True); time.sleep(100)"
    process = spawn("parent", ["sh", "-c", f'{sys.executable} -c "{child}" & wait'], {})
    while not Path(process.log).read_text().strip():
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    while process.alive:
        time.sleep(0.02)
    assert processes.group_alive(process.pid)
    processes.end_orphans(process)
    assert not processes.group_alive(process.pid)


@pytest.mark.parametrize("change", [{"boot": "another"}, {"started": 1}, {"pid": 2**22 - 1}])
def test_a_stale_record_is_recognised(
    fresh_home: Path, no_variables: None, change: dict[str, object]
) -> None:
    fresh_home.mkdir(exist_ok=True)  # who looks after the services asks for it, too
    record = this_process().model_copy(update={"url": "http://127.0.0.1:1"})
    services._write({"prefect": record})
    assert services.alive("prefect") == record
    services._write({"prefect": record.model_copy(update=change)})
    assert services.alive("prefect") is None
    assert services.status()["prefect"] == {"url": None, "pid": None, "healthy": False}
    assert services.down() == {"prefect": "was not running"}


def test_a_server_that_fails_shows_its_log(
    fresh_home: Path, no_variables: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho the disk is on fire\nexit 1\n")
    broken.chmod(0o700)
    monkeypatch.setattr(services.sys, "executable", str(broken))
    with pytest.raises(services.ServiceFailed) as failure:
        services.up()
    assert "ended at its start" in str(failure.value)
    assert "the disk is on fire" in str(failure.value)
    assert str(fresh_home / "logs" / "prefect.log") in str(failure.value)


def test_stop_kills_a_group_that_ignores_sigterm(
    fresh_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "STOP_SECONDS", 0.3)
    script = "trap '' TERM; sleep 100 & echo ready; while true; do sleep 0.1; done"
    process = spawn("stubborn", ["sh", "-c", script], {})
    while "ready" not in Path(process.log).read_text():
        time.sleep(0.02)
    assert stop(process) == "killed"
    assert not processes.group_alive(process.pid)
    assert stop(process) == "was not running"


def test_stop_ends_children_too(fresh_home: Path) -> None:
    process = spawn("parent", ["sh", "-c", "sleep 100 & echo $!; wait"], {})
    while not Path(process.log).read_text().strip():
        time.sleep(0.02)
    child = int(Path(process.log).read_text())
    assert stop(process) == "stopped"
    assert processes.start_time(child) is None
