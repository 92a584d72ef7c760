"""The judge's key reaches the endpoint and nothing else, whatever goes wrong."""

import os
import subprocess
import sys
import time
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from cluster import services
from cluster.environment import worker_variables
from cluster.errors import BadInput
from cluster.ray_session import runtime_env
from tasks.evaluation.judging.endpoint import Endpoint, api_key
from tasks.evaluation.judging.files import Assignment, judge_file

KEY = f"sk-canary-{token_hex(8)}"  # not a constant, which bytecode would hold
NAMES = ("HEADRACE_JUDGE_API_KEY", "OPENAI_API_KEY", "HEADRACE_JUDGE_SECRET")
ROW = '{"id": "a", "input": "?", "prediction": "x"}\n'


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def holds_key(folder: Path) -> list[Path]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return [path for path in files if KEY.encode() in _bytes(path)]


def _bytes(path: Path) -> bytes:
    """What a file holds; services that run make some, and remove them."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def test_d16_a_failing_run_leaves_the_key_nowhere(
    endpoint: Any, scripted: Any, tmp_path: Path
) -> None:
    def script(body: dict[str, Any], call: int) -> Any:
        time.sleep(0.3)
        return scripted(400 if call else 500, f"Invalid request by {KEY}".encode())

    endpoint.script = script
    (tmp_path / "rows.jsonl").write_text(ROW)
    home = tmp_path / "home"
    variables = {**os.environ, "HEADRACE_HOME": str(home), NAMES[0]: KEY}
    command = [sys.executable, "-m", "flows.cli", "judge", str(tmp_path / "rows.jsonl")]
    options = ["--criteria", "fluency", "--judge-url", endpoint.url, "--judge-model", "m", "--json"]
    process = subprocess.Popen(
        command + options, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    lines = set()
    while process.poll() is None:
        lines |= {path.read_bytes() for path in Path(f"/proc/{process.pid}").glob("cmdline")}
        time.sleep(0.05)
    output = b"".join(process.communicate())
    assert endpoint.authorizations[0] == f"Bearer {KEY}"
    assert b'"http_400"' in output
    assert KEY.encode() not in output
    assert lines and not any(KEY.encode() in line for line in lines)
    assert holds_key(tmp_path) == []


def test_the_key_is_not_in_what_ray_shows_of_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAMES[0], KEY)
    assert KEY in worker_variables().values()
    assert KEY not in str(runtime_env())


def test_the_key_of_a_secret_block(
    endpoint: Any, tmp_path: Path, shared_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    services.up()
    from prefect.blocks.system import Secret

    Secret(value=KEY).save("judge-key", overwrite=True)
    monkeypatch.setenv("HEADRACE_JUDGE_SECRET", "judge-key")
    rows = tmp_path / "rows.jsonl"
    rows.write_text(ROW)
    result = judge_file(rows, Assignment("geval", "fluency"), Endpoint(endpoint.url, "secretly"))
    assert result["mean"] == 4.0
    assert set(endpoint.authorizations) == {f"Bearer {KEY}"}
    assert KEY not in str(result)
    assert holds_key(shared_home) == []
    monkeypatch.setenv("HEADRACE_JUDGE_SECRET", "no-such-key")
    with pytest.raises(BadInput, match="no such Secret block"):
        api_key(Endpoint(endpoint.url, "m"))
