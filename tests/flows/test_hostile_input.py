"""Whatever file a command is given, it says in a sentence what is wrong, and ends with status 2."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from typer.main import get_command

from cluster.errors import explain
from flows import cli

COMMANDS: dict[str, Any] = get_command(cli.app).commands  # type: ignore[attr-defined]
KINDS = ("missing", "folder", "binary", "list.yaml")
GOOD = {"prediction": "a", "references": ["a"], "id": "1", "input": "q", "ref": "a"}
JUDGE = ["--judge-url", "http://127.0.0.1:9", "--judge-model", "none"]
# What is not a required argument, but takes a file or a folder: FILE is a hostile one.
OPTIONS = [
    *(["plan", "smoke", "--set", f"{key}=FILE"] for key in ("sources.0.path", "instruct.data")),
    ["plan", "smoke", "--set", "evaluate.exams=[FILE]"],
    ["generate", "none", "--prompt", "x", "--shots", "FILE"],
    ["judge", "ROWS", "--rubric", "FILE", "--metric", "prometheus", *JUDGE],
    ["score", "ROWS", "--contamination", "FILE"],
    ["score", "ROWS", "--metrics", "bertscore", "--encoder", "FILE"],
    ["score", "ROWS", "--metrics", "learned", "--learned", "FILE"],
    ["exam", "none", "ROWS", "--answers", "FILE"],
]
Call = Callable[..., tuple[int, str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 4)
    (tmp_path / "list.yaml").write_text("- a\n- b\n")
    (tmp_path / "file").touch()
    (tmp_path / "rows.jsonl").write_text(json.dumps(GOOD) + "\n")
    return tmp_path


@pytest.fixture
def call(
    fresh_home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Call]:
    """Run a command in this process; its exit status and what it said on stderr."""

    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["headrace", *arguments])
        monkeypatch.setenv("COLUMNS", "500")
        status = cli._guarded()
        return status, capfd.readouterr().err

    yield run


def check(status: int, said: str) -> None:
    assert status == 2, said
    assert "Traceback" not in said
    assert said.splitlines()[-1].lower().startswith("error: "), said


def required(name: str, value: str) -> list[str]:
    """A command with `value` for all that it cannot do without."""
    parts = []
    for parameter in COMMANDS[name].params:
        if parameter.required:
            option = parameter.param_type_name == "option"
            parts += [parameter.opts[0], value] if option else [value]
    return [name, *parts]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [n for n in COMMANDS if len(required(n, "x")) > 1])
def test_a_file_that_is_none(call: Call, folder: Path, name: str, kind: str) -> None:
    check(*call(*required(name, str(folder / kind))))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("words", OPTIONS, ids=" ".join)
def test_an_option_that_names_no_such_file(
    call: Call, folder: Path, words: list[str], kind: str
) -> None:
    places = {"FILE": str(folder / kind), "ROWS": str(folder / "rows.jsonl")}
    for word, path in places.items():
        words = [part.replace(word, path) for part in words]
    check(*call(*words))


WITH_HOME = [n for n, c in COMMANDS.items() if any(p.name == "home" for p in c.params)]


@pytest.mark.parametrize("name", WITH_HOME)
def test_a_home_that_is_a_file(call: Call, folder: Path, name: str) -> None:
    check(*call(*required(name, "smoke"), "--home", str(folder / "file")))


def test_a_home_that_cannot_be_made(call: Call) -> None:
    status, said = call("ls", "--home", "/proc/x")
    check(status, said)
    assert "the home /proc/x cannot be made; name another" in said


@pytest.mark.parametrize(
    "words", [["score", "ROWS", "--to"], ["leaderboard", "--to"], ["learn", "ROWS", "--to"]]
)
def test_a_result_that_cannot_be_written(call: Call, folder: Path, words: list[str]) -> None:
    words = [word.replace("ROWS", str(folder / "rows.jsonl")) for word in words]
    for place in ("file/below.jsonl", "missing/below.jsonl", "folder"):
        check(*call(*words, str(folder / place)))


@pytest.mark.parametrize("damage", ["cut", "binary", "config", "list"])
def test_a_damaged_model_names_its_file(call: Call, folder: Path, damage: str) -> None:
    model = folder / "model"
    model.mkdir()
    save_file({"x": np.zeros(1000, np.float32)}, model / "model.safetensors")
    (model / "config.json").write_text(json.dumps(LLAMA))
    (model / "tokenizer.json").write_text("{}")
    named = {"config": "config.json", "list": "config.json"}
    if damage == "cut":
        os.truncate(model / "model.safetensors", 500)
    elif damage == "binary":
        shutil.copy(folder / "binary", model / "model.safetensors")
    elif damage in ("config", "list"):
        (model / "config.json").write_text("[1]" if damage == "list" else "{")
    status, said = call("generate", str(model), "--prompt", "x")
    check(status, said)
    assert str(model / named.get(damage, "model.safetensors")) in said


LLAMA = {
    "model_type": "llama", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1,
    "num_key_value_heads": 1, "intermediate_size": 16, "vocab_size": 300, "rms_norm_eps": 1e-5,
    "max_position_embeddings": 16, "rope_theta": 1e4, "tie_word_embeddings": True,
    "hidden_act": "silu",
}  # fmt: skip


@pytest.mark.parametrize(
    ("number", "status", "words"),
    [
        (errno.EACCES, 2, "may not be read or written"),
        (errno.EROFS, 2, "read-only"),
        (errno.ENOSPC, 1, "headrace gc"),
        (errno.EFBIG, 1, "ulimit -f unlimited"),
        (errno.EIO, 1, "headrace verify"),
    ],
)
def test_an_error_of_the_system_is_a_sentence(
    call: Call, monkeypatch: pytest.MonkeyPatch, number: int, status: int, words: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), "/somewhere/[x]/runs")

    monkeypatch.setattr(Path, "mkdir", fail)
    got, said = call("ls")
    assert got == status and "Traceback" not in said
    assert "/somewhere/[x]/runs: " in said and words in said


def test_an_error_that_names_no_file_keeps_its_traceback() -> None:
    assert explain(OSError(errno.ENOENT, "no")) is None
    assert explain(ConnectionRefusedError(errno.ECONNREFUSED, "no")) is None


def test_a_usage_error_is_an_object_too(call: Call, capfd: pytest.CaptureFixture[str]) -> None:
    sys.argv = ["headrace", "ls", "--no-such", "--json"]
    assert cli._guarded() == 2
    assert json.loads(capfd.readouterr().out)["error"] == "No such option: --no-such"


@pytest.mark.parametrize(
    ("number", "status", "error"),
    [(signal.SIGTERM, 143, "ended by SIGTERM"), (signal.SIGINT, 130, "interrupted")],
)
def test_a_signal_ends_a_command_with_its_object(
    tmp_path: Path, number: signal.Signals, status: int, error: str
) -> None:
    code = (
        "import os, signal, time; from cluster import services; from flows import cli\n"
        f"signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"services.status = lambda: (os.kill(os.getpid(), {int(number)}), time.sleep(30))\n"
        "import sys; sys.argv = ['headrace', 'status', '--json']; cli.main()"
    )
    environment = os.environ | {"HEADRACE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == status, done.stderr
    assert json.loads(done.stdout) == {"status": "failed", "error": error}
    assert done.stderr == error + "\n"
