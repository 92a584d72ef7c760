"""Files of rows answered by a model: every row accounted for, killed and gone on with."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.stage import build
from cluster.store import Store
from flows.cli import app
from flows.end_to_end import plan
from flows.plan.dag import Dag
from flows.recipe import validate
from model.generation import packed
from model.generation.engine import Engine
from model.generation.packed import Half
from tasks.inference.generation import GenerationSettings, generate_text
from tasks.serving.batch import engine as batch
from tests.published import published_folder

BAD = {
    b"{bad": "invalid_json",
    b'{"prompt": "\xff"}': "invalid_utf8",
    b'{"prompt": "a", "x": NaN}': "invalid_json",
    b'{"prompt": "a", "prompt": "b"}': "duplicate_key",
    b"[1]": "not_an_object",
    b'{"other": 1}': "missing_field",
    b'{"prompt": 5}': "neither_text_nor_messages",
    b'{"messages": []}': "neither_text_nor_messages",
    b'{"messages": [{"role": "user", "content": 3}]}': "bad_messages",
    b'{"prompt": "\\ud800"}': "lone_surrogate",
    b'{"text": "' + b"a " * 200 + b'"}': "too_long",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published_folder(tmp_path_factory.mktemp("published"))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, ...]]]:
    """The prompts that the engine was given."""
    found: list[tuple[int, ...]] = []
    honest = Engine.submit

    def submit(self: Engine, request: Any) -> None:
        found.append(tuple(request.prompt))
        honest(self, request)

    monkeypatch.setattr(Engine, "submit", submit)
    return found


def written(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def counted(path: Path, rows: int) -> Path:
    """Rows that all ask something else, some of which begin alike."""
    return written(path, [{"prompt": f"say {'one ' * (n % 7)}{n}", "n": n} for n in range(rows)])


def infer(folder: Path, rows: Path, to: Path, *options: object) -> dict[str, Any]:
    words = ["infer", folder, rows, "--to", to, "--max-tokens", 8, *options, "--json"]
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return dict(json.loads(done.stdout))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_row_is_answered_or_put_aside(folder: Path, fresh_home: Path, tmp_path: Path) -> None:
    talk = [{"role": "user", "content": "say two"}]
    good = [{"id": "a", "prompt": "say one"}, {"text": "two"}, {"messages": talk, "tokens": "mine"}]
    parts = [*(json.dumps(row).encode() for row in good), b"", *BAD]
    rows, to = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    rows.write_bytes(b"\n".join(parts))
    found = infer(folder, rows, to)
    assert found["rows"] == len(good) + len(BAD) and found["written"] == 3
    assert found["failed"] == {why: list(BAD.values()).count(why) for why in BAD.values()}
    rejects = lines(tmp_path / "out.rejects.jsonl")
    assert [(one["line"], one["reason"]) for one in rejects] == list(enumerate(BAD.values(), 5))
    answers = lines(to)
    assert [one["id"] for one in answers] == ["a", 2, 3]
    settings = GenerationSettings(max_tokens=8)
    for asked, chat, answer in zip(["say one", "two", "say two"], (0, 0, 1), answers, strict=True):
        alone = generate_text(folder, asked, settings.model_copy(update={"chat": bool(chat)}))
        assert answer["prediction"] == alone["text"] and answer["ended"] == alone["ended"]
        assert answer["tokens"] == len(alone["tokens"])
    again = infer(folder, rows, to)
    assert again["cached"] and again["asked"] == 0 and again["failed"] == found["failed"]


@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_broken_off_goes_on_and_asks_no_finished_row_again(
    folder: Path,
    fresh_home: Path,
    tmp_path: Path,
    asked: list[tuple[int, ...]],
    monkeypatch: pytest.MonkeyPatch,
    workers: int,
) -> None:
    """In one stream, and in blocks as on a cluster."""
    monkeypatch.setattr(batch, "BLOCK", 8)
    rows, to = counted(tmp_path / "rows.jsonl", 40), tmp_path / "out.jsonl"
    monkeypatch.setattr("cluster.ray_session.start", lambda: None)
    monkeypatch.setattr("cluster.fan_out._ray_is_up", lambda: False)  # another test may have one
    more = ("--concurrency", 4, "--workers", workers)
    whole = infer(folder, rows, tmp_path / "undisturbed.jsonl", "--concurrency", 4)
    assert whole["asked"] == 40 and len(set(asked)) == 40
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "another"))
    asked.clear()
    keep, kept = batch.ReplyStore.answer, list[str]()

    def answer(self: batch.ReplyStore, key: str, reply: dict[str, Any]) -> None:
        if len(kept) == 13:
            raise KeyboardInterrupt
        keep(self, key, reply)
        kept.append(key)

    with monkeypatch.context() as broken:
        broken.setattr(batch.ReplyStore, "answer", answer)
        words = ["infer", folder, rows, "--to", to, "--max-tokens", 8, *more]
        assert CliRunner().invoke(app, [str(word) for word in words]).exit_code == 130
    assert not to.exists()
    first = asked.copy()
    asked.clear()
    found = infer(folder, rows, to, *more)
    assert (found["asked"], len(asked)) == (27, 27)
    assert found["reused"] == 13 and len({*first, *asked}) == 40
    assert to.read_bytes() == (tmp_path / "undisturbed.jsonl").read_bytes()


def test_a_model_computes_in_the_precision_that_is_asked_for(
    folder: Path, fresh_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines: list[Engine] = []
    honest = Engine.submit

    def submit(self: Engine, request: Any) -> None:
        engines.append(self)
        honest(self, request)

    monkeypatch.setattr(Engine, "submit", submit)
    rows, to = counted(tmp_path / "rows.jsonl", 1), tmp_path / "out.jsonl"
    monkeypatch.setattr(packed, "SMALLEST", 1)
    for precision in ("fp32", "bf16", "fp16"):
        assert infer(folder, rows, to, "--precision", precision)["asked"] == 1
    kinds = [engine.network.embedding.weight.dtype for engine in engines]
    assert kinds == [torch.float32, torch.bfloat16, torch.float32]
    halves = [any(type(m) is Half for m in engine.network.modules()) for engine in engines]
    assert halves == [False, False, True]


def test_samples_are_those_of_generate_and_answers_can_have_a_form(
    folder: Path, fresh_home: Path, tmp_path: Path
) -> None:
    rows, to = tmp_path / "rows.csv", tmp_path / "out.jsonl"
    rows.write_text("question,right\nsay one,1\nsay one,2\n")
    drawn = ("--field", "question", "--chat", "--temperature", 0.8, "--seed", 5)
    infer(folder, rows, to, *drawn)
    texts = [one["prediction"] for one in lines(to)]
    settings = GenerationSettings(decoding="sample", temperature=0.8, max_tokens=8, chat=True)
    seeds = (5 + 2, 5 + 3)  # by line
    alone = [settings.model_copy(update={"seed": seed}) for seed in seeds]
    assert texts == [generate_text(folder, "say one", one)["text"] for one in alone]
    infer(folder, rows, to, *drawn, "--stop", texts[0][2:4], "--concurrency", 1)
    assert lines(to)[0]["prediction"] == texts[0][: texts[0].index(texts[0][2:4])]
    pytest.importorskip("llguidance")
    form = json.dumps({"type": "regex", "regex": "(yes|no)"})
    infer(folder, rows, to, *drawn, "--response-format", form)
    assert {one["prediction"] for one in lines(to)} <= {"yes", "no"}


def test_a_recipe_has_rows_answered_by_its_model(
    folder: Path, fresh_home: Path, tmp_path: Path
) -> None:
    rows = counted(tmp_path / "rows.jsonl", 3)
    asked = {"data": str(rows), "max_tokens": 4}
    values = {"name": "r", "model": {"from": str(folder)}, "pretrain": None, "infer": asked}
    dag = plan("all", Dag("r", Store()), validate(values, "here"))
    done: dict[str, Artifact] = {}
    for node in dag.nodes[:2]:
        inputs = {key: done[value.name] for key, value in node.upstream.items()}  # type: ignore[union-attr]
        done[node.name] = build(node.function, dag.store, recipe="r", **inputs, **node.literals)
    assert done["infer"].manifest.ledger.rows_out == 3
    assert [row["n"] for row in lines(done["infer"].file("answers.jsonl"))] == [0, 1, 2]
    encoder = {"name": "r", "sources": ["a.txt"], "model": {"family": "encoder"}, "infer": asked}
    with pytest.raises(BadInput, match="section `infer`, but an encoder is not run in batches"):
        validate(encoder, "here").asks_for("infer")


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        ("", (), "has no rows"),
        ("{\n", (), "1 of 1 rows .* have no answer .invalid_json 1"),
        ('{"prompt": "a"}\n{\n', ("--max-failed", "0.1"), "max_failed is 0.1"),
        ('{"prompt": "a"}\n', ("--response-format", '{"type": "xml"}'), "json_schema"),
    ],
)
def test_what_cannot_be_done_is_refused(
    folder: Path, fresh_home: Path, tmp_path: Path, rows: str, options: tuple[str, ...], said: str
) -> None:
    (tmp_path / "rows.jsonl").write_text(rows)
    words = ["infer", folder, tmp_path / "rows.jsonl", "--to", tmp_path / "out.jsonl", *options]
    done = CliRunner().invoke(app, [str(word) for word in words])
    with pytest.raises(BadInput, match=said):
        raise done.exception or AssertionError(done.output)
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.slow
def test_workers_of_ray_answer_blocks(
    folder: Path,
    fresh_home: Path,
    tmp_path: Path,
    ray_session: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batch, "BLOCK", 16)
    rows = counted(tmp_path / "rows.jsonl", 64)
    there = infer(folder, rows, tmp_path / "there.jsonl", "--workers", 2)
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "another"))
    infer(folder, rows, tmp_path / "here.jsonl")
    assert there["asked"] == 64
    assert (tmp_path / "there.jsonl").read_bytes() == (tmp_path / "here.jsonl").read_bytes()
