"""`headrace compare` and `headrace logs`, by the commands, on records and artifacts made up."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import BadInput
from cluster.run_logs import Line, lines
from cluster.runs import RunRecord, StageRecord
from cluster.store import Spec, Store
from flows.commands.history import compare
from flows.views.differences import settings_apart
from tests.shell import headrace

RECIPE = {
    "name": "mill",
    "sources": [{"path": "notes.txt", "weight": 1.0}],
    "tokenizer": {"vocab_size": 512},
    "sweep": None,
    "placement": {"workers": 1},
}


class Mill:
    """A home with runs of a recipe that reads, tokenizes, trains and scores."""

    def __init__(self, home: Path):
        self.home, self.store, self.number = home, Store(home), 0

    def stage(self, name: str, settings: Any, inputs: Any, **fields: Any) -> StageRecord:
        """One stage, built unless it is there."""
        spec = Spec(name, 1, "mill", {"settings": settings}, inputs)
        if not self.store.folder(spec).exists():
            with self.store.writer(spec), self.store.draft(spec) as draft:
                rows = fields.pop("losses", [])
                if rows:
                    (draft.path / "metrics.jsonl").write_text("".join(map(step, rows)))
                for key, value in fields.items():
                    setattr(draft, key, value)
        path = str(self.store.folder(spec))
        about = {"name": name, "stage": name, "fingerprint": spec.fingerprint}
        return StageRecord(**about, state="built", why="first build", artifact=path)

    def run(self, vocabulary: int = 512, rate: float = 0.1, **changes: Any) -> RunRecord:
        """A finished run; what it trains depends on the vocabulary and the rate."""
        self.number += 1
        facts = {"sources": [{"path": "notes.txt", "files": 1, "bytes": 9, "rows": 4}]}
        read = self.stage("read", {}, {}, rows=4, facts=facts)
        ids = {"text": read.fingerprint}
        words = self.stage("tokenizer", {"vocab_size": vocabulary}, ids)
        ids |= {"tokenizer": words.fingerprint}
        shards = self.stage("shards", {"heldout_share": 0.1}, ids, tokens=9 * vocabulary)
        losses = [(n, 6 - rate * n * (n > 2), 64 * n) for n in range(1, 31)]
        inputs = {"shards": shards.fingerprint}
        model = self.stage("pretrain", {"rate": rate}, inputs, losses=losses, tokens=1920)
        score = round(3 - rate + vocabulary / 1000, 6)
        doubt = {"intervals": {"bits_per_byte": [score - 0.1, score + 0.1]}, "bytes": 700}
        inputs |= {"model": model.fingerprint}
        scored = self.stage("evaluate", {}, inputs, metrics={"bits_per_byte": score}, facts=doubt)
        recipe = RECIPE | {"tokenizer": {"vocab_size": vocabulary}}
        about: dict[str, Any] = {
            "id": f"mill-{self.number}",
            "status": "completed",
            "started": f"2026-01-0{self.number}T00:00:00+00:00",
            "stages": [read, words, shards, model, scored],
            "metrics": {"bits_per_byte": score, "pretrain.params": 1000.0 + vocabulary},
        }
        return self.saved(RunRecord.start(recipe, "pretrain").model_copy(update=about | changes))

    def saved(self, record: RunRecord) -> RunRecord:
        """The record, after it was written."""
        record.save(self.home)
        return record


def step(row: tuple[int, float, int]) -> str:
    number, loss, tokens = row
    return json.dumps({"step": number, "loss": loss, "lr": 0.1, "tokens": tokens}) + "\n"


@pytest.fixture
def mill(fresh_home: Path) -> Mill:
    fresh_home.mkdir(parents=True)
    return Mill(fresh_home)


def compared(capfd: pytest.CaptureFixture[str], a: str, b: str) -> dict[str, Any]:
    """What the command prints with --json."""
    compare(a, b, as_json=True)
    found: dict[str, Any] = json.loads(capfd.readouterr().out)
    return found


def shown(capfd: pytest.CaptureFixture[str], a: str, b: str) -> str:
    compare(a, b)
    return capfd.readouterr().out


def test_the_command_prints_one_object_of_what_differs(mill: Mill) -> None:
    mill.run()
    mill.run(vocabulary=600)
    done = headrace("compare", "mill-1", "mill", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [run["id"] for run in found["runs"]] == ["mill-1", "mill-2"] and not found["same"]
    assert found["settings"] == {"tokenizer.vocab_size": [512, 600]}
    assert not found["placement"] and not found["data"]["sources"]
    stages = found["data"]["stages"]
    assert list(stages) == ["tokenizer", "shards", "pretrain", "evaluate"]
    assert stages["tokenizer"]["why"] == "vocab_size 512 -> 600"
    assert stages["shards"]["tokens"] == [4608, 5400]
    assert stages["shards"]["why"] == "its tokenizer changed"
    score = found["metrics"]["bits_per_byte"]
    assert score["values"] == [3.412, 3.5] and score["difference"] == pytest.approx(0.088)
    assert score["intervals"] == [pytest.approx([3.312, 3.512]), pytest.approx([3.4, 3.6])]
    assert found["metrics"]["pretrain.params"]["difference"] == 88
    assert found["curves"]["pretrain"]["parts"] is None  # the rate is the same
    assert found["notes"] == [note for note in found["notes"] if "tokens differ" in note]
    assert Path(found["report"]).parent == mill.home / "comparisons"


def test_where_curves_part_is_said_and_drawn(mill: Mill, capfd: pytest.CaptureFixture[str]) -> None:
    mill.run()
    mill.run(rate=0.2)
    found = compared(capfd, "mill-1", "mill-2")
    curve = found["curves"]["pretrain"]
    assert (curve["by"], curve["steps"], curve["parts"]) == ("step", [30, 30], 3)
    assert curve["last"] == [pytest.approx(3.0), pytest.approx(0.0)]
    page = Path(found["report"]).read_text()
    assert page.count("<svg") == 1 and "they part at step 3" in page
    assert not re.search(r"""(src|href)=["']?http|<link|<script""", page)


def test_the_same_run_twice_is_the_same(mill: Mill, capfd: pytest.CaptureFixture[str]) -> None:
    mill.run()
    found = compared(capfd, "mill", "mill-1")
    assert found["same"] and not found["settings"] and not found["notes"]
    assert "the same: settings, data, losses and scores" in shown(capfd, "mill", "mill")
    equal = {"bits_per_byte": 3.412, "pretrain.params": 1512.0}
    mill.run(metrics=equal | {"pretrain.train_seconds": 9.0})  # the machine's figures apart
    assert compared(capfd, "mill-1", "mill-2")["same"]
    mill.run(metrics=equal | {"bits_per_byte": 3.413})
    assert not compared(capfd, "mill-1", "mill-3")["same"]


def test_it_fits_eighty_columns(
    mill: Mill, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    mill.run()
    long = RECIPE | {"sweep": {"widths": list(range(60))}, "notes": "[bold]x[/bold]" * 9}
    mill.run(600, recipe=long, metrics={"evaluate/learning_rate=0.003,seed=0.accuracy" * 2: 1.0})
    shutil.rmtree(mill.home / "artifacts" / "read")
    lines = shown(capfd, "mill-1", "mill-2").splitlines()
    assert {"settings", "data", "training"} <= {line.split()[0] for line in lines if line.strip()}
    assert max(len(line) for line in lines if not line.startswith("report ")) <= 80
    assert any("[bold]x" in line for line in lines)


def test_what_is_gone_is_named_and_the_rest_compared(
    mill: Mill, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second = mill.run(), mill.run(rate=0.2)
    gone, read = (Path(first.stages[n].artifact or "") for n in (3, 0))
    kept = mill.home / "manifests" / "pretrain" / f"{gone.name}.json"
    kept.parent.mkdir(parents=True)
    shutil.move(gone / "artifact.json", kept)  # as `gc` does
    shutil.rmtree(gone)
    shutil.rmtree(read)
    found = compared(capfd, "mill-1", "mill-2")
    assert "of mill-1 are gone from the store: pretrain; their figures are kept" in found["notes"]
    assert any(
        note.startswith("of mill-2 are gone from the store: read") for note in found["notes"]
    )
    assert found["data"]["stages"]["pretrain"]["why"] == "rate 0.1 -> 0.2"
    assert found["curves"]["pretrain"]["steps"] == [0, 30]
    journal = mill.home / "tracking" / f"pretrain-{first.stages[3].fingerprint[:8]}.1.jsonl"
    journal.parent.mkdir()
    rows = [{"step": n, "loss": 5.0, "lr": 0.1, "tokens": 64 * n} for n in (1, 2)]
    journal.write_text(json.dumps({"rows": rows}) + "\n")
    assert compared(capfd, "mill-1", "mill-2")["curves"]["pretrain"]["steps"] == [2, 30]
    assert second.stages[3].artifact  # its curve is the artifact's


def test_a_damaged_curve_is_said(mill: Mill, capfd: pytest.CaptureFixture[str]) -> None:
    first = mill.run()
    path = Path(first.stages[3].artifact or "") / "metrics.jsonl"
    path.write_bytes(path.read_bytes().replace(b"5.7", b"5.8"))
    mill.run(rate=0.2)
    found = compared(capfd, "mill-1", "mill-2")
    (note,) = found["notes"]
    assert "cannot be read: pretrain" in note and "bytes 0 to" in note and "--rebuild" in note


def test_a_failed_run_and_one_that_never_got_far(
    mill: Mill, capfd: pytest.CaptureFixture[str]
) -> None:
    whole = mill.run()
    about = whole.stages[3].model_dump() | {"artifact": None, "state": "failed", "error": "a\nb"}
    failed = [*whole.stages[:3], StageRecord(**about)]
    mill.run(stages=failed, status="failed", metrics={})
    found = compared(capfd, "mill-1", "mill-2")
    assert "pretrain of mill-2 failed: a" in found["notes"]
    assert found["data"]["stages"]["pretrain"]["state"] == [None, "failed"]
    assert found["data"]["stages"]["evaluate"]["fingerprint"][1] is None
    score = found["metrics"]["bits_per_byte"]
    assert (score["values"], score["difference"]) == ([3.412, None], None)
    mill.run(stages=[], status="crashed", metrics={}, process={})
    said = shown(capfd, "mill-2", "mill-3")
    assert "ended before its time" in said and "not part of it" in said


def test_a_record_of_another_version_and_another_recipe(
    mill: Mill, capfd: pytest.CaptureFixture[str]
) -> None:
    mill.run()
    record = mill.run(recipe=RECIPE | {"name": "weir", "old": {"sieve": "<b>3</b>"}}, goal="data")
    path = mill.home / "runs" / f"{record.id}.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"weather": "fair"}))
    found = compared(capfd, "mill", "weir")
    assert found["settings"]["name"] == ["mill", "weir"]
    assert found["settings"]["old"] == [None, {"sieve": "<b>3</b>"}]
    page = Path(found["report"]).read_text()
    assert "<b>3</b>" not in page and "&lt;b&gt;3" in page


def test_steps_of_other_sizes_are_compared_by_tokens(
    mill: Mill, capfd: pytest.CaptureFixture[str]
) -> None:
    first = mill.run()
    losses = [(n, 6.0 if n == 1 else 5.0, 128 * n) for n in range(1, 16)]
    big = mill.stage("pretrain", {"batch": 128}, {}, losses=losses)
    mill.run(stages=[*first.stages[:3], big])
    curve = compared(capfd, "mill-1", "mill-2")["curves"]["pretrain"]
    assert (curve["by"], curve["shared"], curve["parts"]) == ("tokens", 15, 256)


def test_scores_on_other_text_are_said_to_be_so(
    mill: Mill, capfd: pytest.CaptureFixture[str]
) -> None:
    first = mill.run()
    facts = {"bytes": 800}
    other = mill.stage("evaluate", {"max_tokens": 9}, {}, facts=facts)
    mill.run(stages=[*first.stages[:4], other])
    mill.run(stages=first.stages[:4])
    (note,) = compared(capfd, "mill-1", "mill-2")["notes"]
    assert "not scored on the same held-out text" in note
    assert not compared(capfd, "mill-2", "mill-3")["notes"]  # of which one has no score


def test_an_unknown_run_is_refused(mill: Mill) -> None:
    mill.run()
    with pytest.raises(BadInput, match="no run 'mull': did you mean 'mill'"):
        compare("mill", "mull")


@pytest.mark.parametrize(
    ("one", "two", "apart"),
    [
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, {"a.c": [2, 3]}),
        (
            {"a": [{"p": 1}]},
            {"a": [{"p": 2}, {"p": 3}]},
            {"a.0.p": [1, 2], "a.1": [None, {"p": 3}]},
        ),
        ({"a": None}, {}, {}),
        ({"a": None}, {"a": {"b": 1}}, {"a": [None, {"b": 1}]}),
        ({"a": [1, 2]}, {"a": [1, 3]}, {"a": [[1, 2], [1, 3]]}),
        ({"a": []}, {"a": [{"b": 1}]}, {"a": [[], [{"b": 1}]]}),
    ],
)
def test_settings_apart(one: Any, two: Any, apart: Any) -> None:
    assert settings_apart(one, two) == apart


def test_a_log_is_followed_to_the_end_and_no_line_told_twice(
    mill: Mill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server returns lines again, and a late one with an earlier time."""
    from datetime import UTC, datetime, timedelta
    from types import SimpleNamespace

    from cluster import run_logs

    start = datetime(2026, 1, 1, tzinfo=UTC)

    def line(number: int, seconds: float) -> Any:
        when = start + timedelta(seconds=seconds)
        about = {"id": number, "timestamp": when, "level": 20, "name": "headrace.run"}
        return SimpleNamespace(**about, task_run_id=None, message=f"line {number}")

    record = mill.run(status="running", flow_run_id="1")
    answers = [[line(1, 0), line(2, 9)], [line(3, 8), line(2, 9)], [line(2, 9), line(4, 11)]]
    asked: list[datetime | None] = []

    def read(flow_run_id: str, after: datetime | None) -> Any:
        asked.append(after)
        if len(asked) == 2:
            mill.saved(record.model_copy(update={"status": "completed"}))
        return answers[len(asked) - 1]

    monkeypatch.setattr(run_logs, "up", lambda: None)
    monkeypatch.setattr(run_logs, "_read", read)
    monkeypatch.setattr(run_logs, "POLL_SECONDS", 0.0)
    found = list(lines(mill.home, record, follow=True))
    assert [one.message for one in found] == [f"line {n}" for n in (1, 2, 3, 4)]
    assert found[0] == Line("2026-01-01T00:00:00+00:00", "INFO", "headrace.run", "", "line 1")
    assert asked[0] is None and asked[1] == start + timedelta(seconds=9) - run_logs.LATE


def test_a_run_without_a_flow_run_has_no_log(mill: Mill) -> None:
    with pytest.raises(BadInput, match="run mill-1 has no log"):
        list(lines(mill.home, mill.run()))


def test_the_log_of_a_recipe_is_that_of_its_newest_run(
    mill: Mill, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from cluster import run_logs
    from flows.commands.history import logs

    monkeypatch.setattr(run_logs, "lines", lambda root, record, follow: iter(()))
    _, newest = mill.run(), mill.run()
    logs(str(newest.recipe["name"]), as_json=True)
    assert json.loads(capfd.readouterr().out)["id"] == newest.id
