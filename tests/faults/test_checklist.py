"""What Headrace's defaults keep shut, D1 to D26 of the checklist in `docs/how/shared-machine.md`.

Those that stand beside what they are about are not here, but bear their number all the same.
"""

import ast
import json
import logging
import os
import random
import re
import resource
import subprocess
import sys
import tomllib
from pathlib import Path

import httpx
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from packaging.requirements import Requirement
from packaging.version import Version

from cluster import services
from cluster.environment import TELEMETRY_OFF
from cluster.errors import BadInput
from cluster.keys import authorization
from cluster.services import Services
from cluster.url_secrets import VARIABLE
from model.hub import load
from tasks.data.reading.decompress import Entry
from tasks.data.reading.formats import ARCHIVES, MEMBERS
from tasks.data.reading.remote import download
from tasks.data.reading.settings import SourceSettings
from tasks.data.reading.tables import table_rows
from tasks.tokens.origins import ABOUT, WEIGHTS
from tests.cluster.test_services import answering

ROOT = Path(__file__).parents[2]
TOPS = ("flows", "tasks", "model", "cluster")
SOURCE = [path for top in TOPS for path in (ROOT / top).rglob("*.py")]
BESIDE = [path for top in ("docs", "benchmarks", ".ci") for path in (ROOT / top).rglob("*")]
CODE_FROM_OUTSIDE = {"eval", "joblib", "dill", "jsonpickle", "shelve", "marshal"}
UNSAFE = ("weights_only=False", "allow_pickle=True", "trust_remote_code=True", "shell=True")
OURS = {
    "cluster/own.py": "pickle",  # a function of the run's own, from one of its processes to another
    "model/hub.py": "pickle",  # the name of an error
}
SECRETS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY|\bAKIA[0-9A-Z]{16}\b|\bghp_[0-9A-Za-z]{36}\b|"
    r"\bhf_[0-9A-Za-z]{34}\b|\bsk-[0-9A-Za-z]{40,}\b"
)


@pytest.fixture(scope="module")
def up(shared_home: Path) -> Services:
    """The services of the test run."""
    return services.up(wait_for_mlflow=True)


def test_d02_ray_answers_nobody_without_its_token(ray_session: None) -> None:
    import ray

    ask = (
        "import sys; from ray._raylet import GcsClient; "
        "print(len(GcsClient(address=sys.argv[1]).get_all_node_info(timeout=20)))"
    )
    command = [sys.executable, "-c", ask, ray.get_runtime_context().gcs_address]
    known = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": os.environ["RAY_AUTH_TOKEN_PATH"]}
    bare = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    wrong = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}
    answers = [
        subprocess.run(command, env=bare | more, capture_output=True, text=True)
        for more in (known, {"RAY_AUTH_MODE": "disabled"}, wrong)
    ]
    assert answers[0].stdout == "1\n", answers[0].stderr
    for refused in answers[1:]:
        assert refused.returncode != 0 and "uthenticat" in refused.stderr, refused


def test_d05_prefect_asks_for_a_password(up: Services) -> None:
    for path in ("flows/count", "flow_runs/count", "deployments/filter"):
        assert httpx.post(f"{up.prefect_ui}/api/{path}", json={}).status_code == 401
    known = {"Authorization": authorization(up.prefect_ui)}
    assert httpx.post(f"{up.prefect_ui}/api/flows/count", json={}, headers=known).is_success


def test_d06_no_other_site_may_ask_prefect(up: Services) -> None:
    """Not even with the password."""
    known = {"Authorization": authorization(up.prefect_ui), "Origin": "http://evil.example"}
    for ask in (httpx.get, httpx.options, httpx.post):
        reply = ask(f"{up.prefect_ui}/api/health", headers=known)
        assert reply.status_code == 403
        assert "access-control-allow-origin" not in reply.headers


def test_d07_mlflow_goes_by_its_own_name_only(up: Services) -> None:
    url = str(up.mlflow_ui)
    known = {"Authorization": authorization(url)}
    port = url.rsplit(":", 1)[1]
    for host in ("evil.example", f"192.168.1.77:{port}", "localhost.evil.example", "0.0.0.0"):
        assert httpx.get(f"{url}/health", headers=known | {"Host": host}).status_code == 403
    assert httpx.get(f"{url}/health", headers=known).is_success


def test_d08_mlflow_loads_no_pickle(up: Services) -> None:
    import mlflow

    server = psutil.Process(services.status()["mlflow"]["pid"])
    assert server.environ()["MLFLOW_ALLOW_PICKLE_DESERIALIZATION"] == "false"
    assert Version(mlflow.__version__) >= Version("3.15")
    own = re.compile(r"mlflow\.\w+\.load_model|mlflow\.pyfunc|from mlflow import pyfunc")
    assert not [path for path in SOURCE if own.search(path.read_text())]


def test_d09_d18_what_services_keep_is_the_users_alone(up: Services, shared_home: Path) -> None:
    """Runs in this process, whose umask is not the command's, write beside them."""
    patterns = ("mlflow/mlflow.db*", "prefect/prefect.db*", "logs/*.log")
    kept = [path for pattern in patterns for path in shared_home.glob(pattern)]
    open_to_others = [path for path in kept if path.lstat().st_mode & 0o077]
    assert shared_home / "mlflow" / "mlflow.db" in kept and not open_to_others


def names(path: Path) -> set[str]:
    """The names that a module calls or imports."""
    found = set[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            found.add(getattr(node.func, "id", ""))
        elif isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
    return found


def test_d10_nothing_from_outside_is_unpickled_or_run() -> None:
    """Ruff's rules S are on, and each exception from them is one of these."""
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    assert "S" in rules["select"] and not {"S301", "S302", "S307", "S506"} & set(rules["ignore"])
    for path in SOURCE:
        name = path.relative_to(ROOT).as_posix()
        taken = {"pickle", "cloudpickle", *CODE_FROM_OUTSIDE} & names(path)
        assert not taken - {OURS.get(name)}, f"{name} uses {taken}"
        code = path.read_text()
        assert not [word for word in UNSAFE if word in code], name
        assert code.count("torch.load(") == code.count("weights_only=True"), name


class Planted:
    """Creates a file when it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.canary,)


def test_d11_a_model_that_is_a_program_is_refused(tmp_path: Path) -> None:
    assert Version(torch.__version__) >= Version("2.6")
    folder, canary = tmp_path / "model", tmp_path / "canary"
    folder.mkdir()
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "vocab_size": 8}
    about = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_attention_heads": 1}
    (folder / "config.json").write_text(json.dumps(about | sizes | {"max_position_embeddings": 8}))
    torch.save({"model.norm.weight": Planted(canary)}, folder / "pytorch_model.bin")
    torch.load(folder / "pytorch_model.bin", weights_only=False)
    assert canary.exists()  # so it would
    canary.unlink()
    with pytest.raises(ValueError, match=r"pytorch_model\.bin is damaged.*more than tensors"):
        load(folder)
    assert not canary.exists()


def spoil(folder: Path) -> tuple[int, int]:
    """How many of some hundred spoilt tables were read, and how many refused by name."""
    draws, read, refused = random.Random(7), 0, 0
    for suffix in (".arrow", ".parquet"):
        whole = (folder / f"rows{suffix}").read_bytes()
        for _ in range(150):
            spoilt = bytearray(whole)
            for at in (draws.randrange(len(whole)) for _ in range(draws.choice((1, 8)))):
                spoilt[at : at + 4] = draws.choice((b"\xff\xff\xff\x7f", draws.randbytes(4)))
            path = folder / f"spoilt{suffix}"
            path.write_bytes(spoilt)
            try:
                with path.open("rb") as file:
                    entry = Entry(path.name, str(path), len(spoilt), file, seekable=True)
                    list(table_rows(entry, SourceSettings(path=str(path), id="id"), suffix))
                read += 1
            except BadInput as error:
                assert path.name in str(error), error
                refused += 1
    return read, refused


def test_d14_no_spoilt_table_ends_the_process(tmp_path: Path) -> None:
    """Lengths and offsets out of range among them. They are not read in a process apart: offsets
    and texts are checked before they are used.
    """
    assert Version(pa.__version__) >= Version("14.0.1")
    texts = [f"of mill {n} and its {'wheel ' * (n % 7)}" for n in range(200)]
    kinds = pa.array([f"kind {n % 3}" for n in range(200)]).dictionary_encode()
    table = pa.table({"text": texts, "id": kinds})
    pq.write_table(table, tmp_path / "rows.parquet", write_page_checksum=True)
    with pa.ipc.new_file(str(tmp_path / "rows.arrow"), table.schema) as writer:
        writer.write_table(table)
    into, out = os.pipe()
    if (child := os.fork()) == 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        try:
            os.write(out, "{} {}".format(*spoil(tmp_path)).encode())
        except BaseException as error:
            os.write(out, repr(error).encode()[:4096])
        os._exit(0)
    os.close(out)
    with os.fdopen(into) as answer:
        told = answer.read()
    assert os.waitpid(child, 0)[1] == 0, "a spoilt table ended the process"
    read, refused = map(int, told.split())
    assert read + refused == 300 and refused > 100


def test_d17_no_log_has_a_password_of_a_source(
    fresh_home: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of any library, at the level that shows most, whether nobody answers or a server refuses."""
    monkeypatch.setenv(VARIABLE, "{}")
    monkeypatch.setattr("tasks.data.reading.remote.FIRST_WAIT_S", 0.0)
    with answering(403) as server:
        for host in ("127.0.0.1:9", server.removeprefix("http://")):
            for path in ("rows.jsonl?sig=CANARY", "*.jsonl"):
                with caplog.at_level(logging.DEBUG), pytest.raises(BadInput) as told:
                    download(f"http://me:CANARY@{host}/{path}")
                assert "<hidden-" in str(told.value) and "CANARY" not in str(told.value)
    assert caplog.records and "CANARY" not in caplog.text


def test_d21_every_dependency_is_pinned_with_hashes() -> None:
    pinned = (ROOT / "constraints.txt").read_text()
    hashed = r"^([\w.-]+)==(\S+)[^\n]*\n((?: +--hash=sha256:[0-9a-f]{64}.*\n)+)"
    blocks = re.findall(hashed, pinned, re.M)
    lines = [line for line in pinned.splitlines() if line and line[0].isalnum()]
    assert len(blocks) == len(lines) > 100
    versions = {name: version for name, version, _ in blocks}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for wanted in map(Requirement, project["dependencies"]):
        name = re.sub("[-_.]+", "-", wanted.name).lower()
        assert wanted.specifier.contains(versions[name], prereleases=True), wanted


def test_d22_the_page_has_the_commands_that_look_for_known_faults_and_licences() -> None:
    """They ask a data base elsewhere, so no test runs them."""
    page = (ROOT / "docs" / "how" / "shared-machine.md").read_text()
    assert "pip-audit -r constraints.txt" in page and "pip-licenses" in page
    assert "cyclonedx-py environment" in page


def test_d23_no_file_of_the_project_has_a_secret() -> None:
    """Of its history `gitleaks` tells, which is no package of Python's. What is run elsewhere
    names no action by a tag.
    """
    assert SECRETS.search("key = 'hf_" + "a" * 34 + "'")
    for path in [*SOURCE, *BESIDE, *ROOT.glob("*.*")]:
        if path.is_file() and path.suffix not in (".png", ".pyc"):
            assert not SECRETS.search(path.read_text(errors="replace")), path
    assert not (ROOT / ".github").exists() and "uses:" not in (ROOT / ".ci" / "run").read_text()


def test_d24_nothing_that_is_started_reports_to_its_makers(up: Services) -> None:
    for name in ("prefect", "mlflow"):
        told = psutil.Process(services.status()[name]["pid"]).environ()
        for variable, value in TELEMETRY_OFF.items():
            assert told[variable] == value, (name, variable)


def test_d26_of_the_hub_come_texts_tensors_and_settings_and_no_code() -> None:
    """A name of a branch is taken, as what it stood for is known by its hash ever after."""
    for pattern in (*ABOUT, *WEIGHTS):
        assert pattern in ("*.json", "*.jinja", "README.md", "*.safetensors", "*.bin")
    wanted = [f"*{suffix}*" for suffix in (*MEMBERS, *ARCHIVES)]
    assert "*.pkl*" not in wanted and "*.pt*" not in wanted


def test_every_line_of_the_checklist_has_a_test_of_its_number() -> None:
    page = (ROOT / "docs" / "how" / "shared-machine.md").read_text()
    lines = [int(number) for number in re.findall(r"^\| D(\d+) \|", page, re.M)]
    assert lines == list(range(1, 27))
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    named = re.findall(r"def test_((?:d\d\d_)+)", tests)
    assert {int(number) for name in named for number in re.findall(r"\d+", name)} == set(lines)


def test_every_fault_that_the_page_tells_of_has_its_tests() -> None:
    page = (ROOT / "docs" / "how" / "faults.md").read_text()
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    named = re.findall(r"`(test_\w+)`", page)
    assert len(named) > 30
    assert [name for name in named if f"def {name}(" not in tests] == []
