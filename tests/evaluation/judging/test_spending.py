"""Budgets over invocations, endpoints that fail for everyone, keys, and limits of tokens."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import BadInput
from tasks.evaluation.judging.client import EndpointJudge
from tasks.evaluation.judging.endpoint import MODEL_KEY, Endpoint, api_key
from tasks.evaluation.judging.files import Assignment, judge_file
from tasks.evaluation.judging.questions import Distribution, Question, Unscored
from tasks.evaluation.judging.reply_store import ReplyStore

SCALE = ("1", "2", "3", "4", "5")
ROWS = "".join(f'{{"id": "{i}", "input": "?", "prediction": "answer {i}"}}\n' for i in range(20))


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEADRACE_JUDGE_API_KEY", "HEADRACE_MODEL_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def questions(count: int) -> list[Question]:
    texts = (f"answer {i}" for i in range(count))
    return [Question("Rate it.", "Rate it.", (("answer", t),), "Score:", SCALE) for t in texts]


def judge(server: Any, folder: Path, work: str = "", **settings: Any) -> EndpointJudge:
    quick = {"backoff": 0.01, "repeats": 0, **settings}
    store = ReplyStore(folder / "replies.sqlite")
    return EndpointJudge(Endpoint(server.url, "m", **quick), store, work)


def reasons(verdicts: Any) -> set[str]:
    return {verdict.reason for verdict in verdicts if isinstance(verdict, Unscored)}


def judged(url: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "rows.jsonl").write_text(ROWS)
    command = [sys.executable, "-m", "flows.cli", "judge", str(folder / "rows.jsonl"), "--json"]
    endpoint = ["--judge-url", url, "--judge-model", "m", "--criteria", "fluency"]
    return subprocess.run([*command, *endpoint, *options], capture_output=True, text=True)


def test_a_budget_holds_over_invocations(endpoint: Any, tmp_path: Path, fresh_home: Path) -> None:
    # 100 tokens in and 2 out at 100 USD per million: .0102 USD a call.
    (tmp_path / "rows.jsonl").write_text(ROWS)
    paid = Endpoint(endpoint.url, "m", prices=(100, 100), budget=0.2)
    work = Assignment("geval", "fluency")
    found = [judge_file(tmp_path / "rows.jsonl", work, paid) for _ in range(3)]
    assert 0.05 < found[0]["cost"] <= found[0]["spent"] <= 0.2
    assert found[2]["spent"] <= 0.2
    assert sum(one["calls"] for one in found) * 0.0102 <= 0.2
    assert found[2]["unscored"].keys() == {"budget"}


@pytest.mark.parametrize("usage", [{}, {"prompt_tokens": 0, "completion_tokens": 0}, None])
def test_without_a_count_of_tokens_what_was_set_aside_is_booked(
    endpoint: Any, tmp_path: Path, scripted: Any, usage: Any
) -> None:
    body = {"choices": [{"message": {"content": "4"}}], "usage": usage}
    endpoint.script = lambda asked, call: scripted(200, json.dumps(body).encode())
    asked = judge(endpoint, tmp_path, prices=(1e4, 1e4), budget=5.0)
    assert reasons(asked.distributions(questions(40))) == {"budget"}
    assert 0 < asked.calls < 20
    assert asked.cost == pytest.approx(asked.spending.total) and 0 < (asked.cost or 0) <= 5.0


def test_a_request_without_a_reply_may_have_been_paid(
    endpoint: Any, tmp_path: Path, scripted: Any
) -> None:
    endpoint.script = lambda asked, call: scripted(200, b"no completion")
    lost = judge(endpoint, tmp_path, prices=(1e4, 1e4), budget=5.0, attempts=1)
    lost.distributions(questions(2))
    assert lost.cost == 0.0 and (lost.spending.total or 0) > 0
    free = judge(endpoint, tmp_path, "another", prices=(1e4, 1e4), budget=5.0, attempts=1)
    endpoint.script = lambda asked, call: scripted(503)
    free.distributions(questions(2))
    assert free.spending.total == pytest.approx(0.0)


def test_an_endpoint_that_fails_for_everyone_is_soon_asked_no_more(
    endpoint: Any, tmp_path: Path, scripted: Any, fresh_home: Path
) -> None:
    page = b"<html><title>502 Bad Gateway</title></html>"
    endpoint.script = lambda asked, call: scripted(502, page)
    found = judged(endpoint.url, tmp_path, "--concurrency", "4", "--max-tokens", "3000")
    assert found.returncode == 1
    result = json.loads(found.stdout)
    assert result["unscored"] == {"server_error": 20}
    assert "502 Bad Gateway" in result["words"]["server_error"]
    assert "502 Bad Gateway" in found.stderr
    assert result["calls"] <= 20
    assert {body["max_tokens"] for body in endpoint.bodies} == {3000}


@pytest.mark.parametrize(
    ("status", "words", "reason", "most"),
    [
        (429, b"busy", "rate_limited", 40),
        (429, b'{"error": {"code": "insufficient_quota"}}', "out_of_quota", 4),
        (404, b"no such model", "http_404", 8),
        (400, b"unknown model", "http_400", 28),
    ],
)
def test_what_no_row_gets_past_ends_the_run(
    endpoint: Any, tmp_path: Path, scripted: Any, status: int, words: bytes, reason: str, most: int
) -> None:
    endpoint.script = lambda asked, call: scripted(status, words)
    asked = judge(endpoint, tmp_path, concurrency=4)
    assert reasons(asked.distributions(questions(40))) == {reason}
    assert asked.calls <= most


def test_an_outage_in_a_run_that_went_well_is_waited_for(
    endpoint: Any, tmp_path: Path, completion: Any, scripted: Any
) -> None:
    until = iter(range(7))

    def script(body: dict[str, Any], call: int) -> Any:
        return completion("4") if call < 8 or next(until, None) is None else scripted(503)

    endpoint.script = script
    asked = judge(endpoint, tmp_path, concurrency=4, attempts=20)
    assert not reasons(asked.distributions(questions(40)))


def test_one_rows_failure_ends_nothing(
    endpoint: Any, tmp_path: Path, completion: Any, scripted: Any
) -> None:
    def script(body: dict[str, Any], call: int) -> Any:
        breaks = "answer 3\n" in body["messages"][0]["content"]
        return scripted(500, b"out of memory") if breaks else completion("4")

    endpoint.script = script
    verdicts = judge(endpoint, tmp_path, concurrency=4, attempts=3).distributions(questions(30))
    assert sum(isinstance(verdict, Distribution) for verdict in verdicts) == 29
    assert verdicts[3] == Unscored("server_error", "status 500: out of memory")


def test_a_limit_too_long_for_one_row_is_left_out_for_that_row(
    endpoint: Any, tmp_path: Path, completion: Any, scripted: Any
) -> None:
    def script(body: dict[str, Any], call: int) -> Any:
        long = "answer 0\n" in body["messages"][0]["content"]
        if long and "max_tokens" in body:
            return scripted(400, b"'max_tokens' is too large: 16")
        return completion("4")

    endpoint.script = script
    asked = judge(endpoint, tmp_path, concurrency=1, samples=2)
    assert not reasons(asked.distributions(questions(5)))
    assert ["max_tokens" in body for body in endpoint.bodies].count(False) == 2
    assert len(endpoint.bodies) == 12


def test_thoughts_without_an_answer_say_what_to_raise(
    endpoint: Any, tmp_path: Path, completion: Any, scripted: Any
) -> None:
    message = {"content": None, "reasoning_content": "Is it a 4? Let me see"}
    body = {"choices": [{"message": message, "finish_reason": "length"}]}
    endpoint.script = lambda asked, call: scripted(200, json.dumps(body).encode())
    asked = judge(endpoint, tmp_path, repeats=5)
    (verdict,) = asked.distributions(questions(1))
    assert isinstance(verdict, Unscored) and verdict.reason == "thoughts_only"
    assert "raise max_tokens" in verdict.detail
    assert asked.calls == 1


def test_an_echoed_key_is_masked_in_what_is_kept(
    endpoint: Any, tmp_path: Path, completion: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_JUDGE_API_KEY", "sk-canary-77")
    pieces = [
        {"token": t, "logprob": 0.0, "top_logprobs": [{"token": t, "logprob": 0.0}]}
        for t in ("sk-", "canary-77")
    ]
    endpoint.script = lambda asked, call: completion(
        "You sent sk-canary-77", logprobs={"content": pieces}
    )
    assert judge(endpoint, tmp_path).texts(["?"]) == ["You sent [key]"]
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("replies.sqlite*"))
    assert b"canary-77" not in stored


@pytest.mark.parametrize(
    ("url", "role", "key"),
    [
        ("https://api.openai.com/v1", None, "openais"),
        ("https://judge.example/v1", None, None),
        ("https://own.example/v1", "https://own.example/v1", "openais"),
        ("https://api.openai.com/v1", "https://own.example/v1", None),
    ],
)
def test_openais_key_is_for_its_own_host(
    url: str, role: str | None, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "openais")
    monkeypatch.setenv("OPENAI_BASE_URL", role or "")
    assert api_key(Endpoint(url, "m")) == key


def test_a_judges_key_is_not_sent_to_a_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_JUDGE_API_KEY", "judges")
    assert api_key(Endpoint("https://a.example", "m")) == "judges"
    assert api_key(Endpoint("https://a.example", "m", key=MODEL_KEY)) is None
    monkeypatch.setenv("HEADRACE_MODEL_API_KEY", "models")
    assert api_key(Endpoint("https://a.example", "m", key=MODEL_KEY)) == "models"


def test_replies_of_one_address_are_not_anothers(
    endpoint: Any, tmp_path: Path, completion: Any
) -> None:
    judge(endpoint, tmp_path).distributions(questions(1))
    endpoint.url = endpoint.url.replace("/v1", "/other/v1")
    endpoint.script = lambda asked, call: completion("1")
    (verdict,) = judge(endpoint, tmp_path).distributions(questions(1))
    assert isinstance(verdict, Distribution) and verdict.likeliest == "1"


def test_a_budget_needs_prices(endpoint: Any, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="the price of 'm' is unknown"):
        judge(endpoint, tmp_path, budget=1.0)
