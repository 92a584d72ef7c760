"""What `headrace judge FILE.jsonl` does."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import BadInput
from cluster.store import Store
from tasks.evaluation.judging.canaries import ATTACKS
from tasks.evaluation.judging.endpoint import Endpoint
from tasks.evaluation.judging.files import Assignment
from tasks.evaluation.judging.files import judge_file as judge_rows
from tasks.evaluation.judging.rows import CONSTANT_ANSWER
from tests.shell import headrace


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows))
    return path


def judge_file(path: Path, url: str, model: str, **work: Any) -> dict[str, Any]:
    endpoint = Endpoint(url, model, backoff=0.01)
    return judge_rows(path, Assignment(**work), endpoint, store=Store())


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    names = ("good", "bad", "lost")
    return write(
        tmp_path / "rows.jsonl",
        *({"id": n, "input": "?", "prediction": f"A {n} one.", "reference": "It."} for n in names),
    )


def script_for(completion: Any, scripted: Any) -> Any:
    def script(body: dict[str, Any], call: int) -> Any:
        prompt = body["messages"][0]["content"]
        if "Write " in prompt:
            return completion("1. Read it.\n2. Rate it.")
        if "A lost one." in prompt:
            return scripted(404)
        if CONSTANT_ANSWER in prompt:
            return completion("1")
        return completion("5" if "A good one." in prompt else "2")

    return script


def test_the_command_asks_as_many_questions_on_a_text_as_it_is_told(
    rows: Path, endpoint: Any, completion: Any, fresh_home: Path
) -> None:
    asked: list[str] = []

    def script(body: dict[str, Any], call: int) -> Any:
        asked.append(body["messages"][0]["content"])
        return completion("1. Is it?\n2. Was it?" if "Write " in asked[-1] else "yes")

    endpoint.script = script
    judge = ("--judge-url", endpoint.url, "--judge-model", "m", "--metric", "qag")
    done = headrace("judge", str(rows), *judge, "--questions", "2", "--json")
    assert done.returncode == 0, done.stderr
    assert any("Write 2 short questions" in prompt for prompt in asked)


def test_failures_are_unscored_and_the_mean_is_of_the_rest(
    rows: Path, endpoint: Any, completion: Any, scripted: Any, fresh_home: Path
) -> None:
    endpoint.script = script_for(completion, scripted)
    result = judge_file(rows, metric="geval", url=endpoint.url, model="m")
    assert (result["scored"], result["unscored"], result["mean"]) == (2, {"http_404": 1}, 3.5)
    assert result["interval"] == [2.0, 5.0]
    assert result["bounds"] == [pytest.approx(8 / 3), 4.0]
    assert result["baseline"] == 1.0
    assert [(r["id"], r["score"], r["mode"], r["reason"]) for r in result["rows"]] == [
        ("good", 5.0, "single", None),
        ("bad", 2.0, "single", None),
        ("lost", None, None, "http_404"),
    ]
    assert result["rows"][0]["spread"] is None
    steps = result["steps"]["correctness"]
    assert (steps["source"], steps["steps"]) == ("generated", ("Read it.", "Rate it."))
    assert (result["random"], result["order"], result["warnings"]) == (3, "score only", [])
    assert result["canaries"]["fooled"] == []
    assert result["cost"] is None


def test_a_second_run_asks_only_what_failed(
    rows: Path, endpoint: Any, completion: Any, scripted: Any, fresh_home: Path
) -> None:
    endpoint.script = script_for(completion, scripted)
    first = judge_file(rows, metric="geval", url=endpoint.url, model="m")
    # Steps, two good replies, a failing one, the constant answer, the same for every row, canaries.
    assert (first["calls"], first["reused"]) == (5 + len(ATTACKS), 0)
    second = judge_file(rows, metric="geval", url=endpoint.url, model="m")
    assert second["calls"] == 1
    assert second["mean"] == first["mean"]


def test_rows_of_a_packed_file_are_written_with_their_scores(
    rows: Path, endpoint: Any, fresh_home: Path
) -> None:
    packed, to = rows.with_suffix(".gz"), rows.with_name("scored.jsonl")
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbf" + rows.read_bytes()))
    work = Assignment("geval", steps=write(rows.with_name("steps"), "Rate it."))
    judge_rows(packed, work, Endpoint(endpoint.url, "m"), to)
    found = [json.loads(line) for line in to.read_text().splitlines()]
    assert [(row["prediction"], row["score"]) for row in found] == [
        (f"A {name} one.", 4.0) for name in ("good", "bad", "lost")
    ]


def test_nothing_scored_is_no_mean(
    rows: Path, endpoint: Any, scripted: Any, fresh_home: Path
) -> None:
    endpoint.script = lambda body, call: scripted(401)
    result = judge_file(rows, metric="geval", url=endpoint.url, model="m")
    assert (result["scored"], result["mean"], result["interval"]) == (0, None, None)
    assert result["unscored"] == {"key_refused": 3}
    assert result["bounds"] == [1, 5]


def test_questions_are_asked_of_every_row(
    tmp_path: Path, endpoint: Any, completion: Any, fresh_home: Path
) -> None:
    def script(body: dict[str, Any], call: int) -> Any:
        prompt = body["messages"][0]["content"]
        if "Write 2 short" in prompt:
            return completion("1. Is it blue?\n2. Is it tall?")
        return completion("yes" if "blue?" in prompt else "idk")

    endpoint.script = script
    path = write(
        tmp_path / "r.jsonl", {"input": "?", "prediction": "Blue.", "reference": "Blue, tall."}
    )
    result = judge_file(path, metric="qag", url=endpoint.url, model="m", questions=2)
    (row,) = result["rows"]
    assert (row["id"], row["score"], row["coverage"], row["min"]) == ("1", 0.5, 0.5, 0.5)
    assert result["steps"]["qag"] == {"source": "generated", "questions": 2}


def test_steps_from_a_file_and_a_criterion_in_words(
    rows: Path, tmp_path: Path, endpoint: Any, fresh_home: Path
) -> None:
    steps = tmp_path / "steps.txt"
    steps.write_text("Look at the tone.\n\nRate it.\n")
    result = judge_file(
        rows,
        metric="geval",
        url=endpoint.url,
        model="m",
        criterion="Is it polite?",
        steps=steps,
        scale=(0, 10),
    )
    assert result["mean"] == 4.0
    assert result["steps"]["is_it_polite"]["source"] == "file"
    assert "1. Look at the tone." in endpoint.bodies[0]["messages"][0]["content"]
    assert "Is it polite?" in endpoint.bodies[0]["messages"][0]["content"]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("{", "line 2 is not JSON"),
        ("[]", "line 2 is not a JSON object"),
        ("[" * 100_000, "line 2 is not JSON"),
        ({"input": "?"}, "line 2 has no text in 'prediction'"),
        ({"input": "?", "prediction": "x", "reference": 3}, "line 2: 'reference' is 3"),
        ({"id": "a", "input": "?", "prediction": "x"}, "two rows with the same id"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, bad: Any, words: str, fresh_home: Path) -> None:
    path = write(tmp_path / "r.jsonl", {"id": "a", "input": "?", "prediction": "x"}, bad)
    with pytest.raises(BadInput, match=words):
        judge_file(path, metric="geval", url="http://127.0.0.1:1", model="m")


def test_an_unknown_metric_is_refused(rows: Path, fresh_home: Path) -> None:
    with pytest.raises(BadInput, match="did you mean 'geval'"):
        judge_file(rows, metric="gevall", url="http://127.0.0.1:1", model="m")


def test_the_command_fails_where_nothing_is_scored(
    rows: Path, endpoint: Any, scripted: Any, fresh_home: Path
) -> None:
    endpoint.script = lambda body, call: scripted(401)
    judge = ("--judge-url", endpoint.url, "--judge-model", "m", "--metric", "geval", "--json")
    done = headrace("judge", str(rows), *judge)
    assert done.returncode == 1 and json.loads(done.stdout)["scored"] == 0
    assert f"no row of {rows} was scored: key_refused (3)" in done.stderr
