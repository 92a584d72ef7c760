import contextlib
import logging
import math
import socket
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import BadInput
from tasks.evaluation.judging import silence
from tasks.evaluation.judging.client import EndpointJudge
from tasks.evaluation.judging.endpoint import Endpoint, check_url, proxy_of
from tasks.evaluation.judging.questions import Distribution, Question, Unscored, Verdict
from tasks.evaluation.judging.rate_limit import RateLimit, retry_after
from tasks.evaluation.judging.reply_store import ReplyStore

SCALE = ("1", "2", "3", "4", "5")


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADRACE_JUDGE_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def question(text: str = "some answer") -> Question:
    return Question("Rate it.", "Rate it.", (("answer", text),), "Score:", SCALE)


def client(server: Any, folder: Path, **settings: Any) -> EndpointJudge:
    quick = {"backoff": 0.01, "deadline": 5.0, "attempts": 3, "repeats": 0, **settings}
    endpoint = Endpoint(server.url, "some-model", **quick)
    return EndpointJudge(endpoint, ReplyStore(folder / "replies.sqlite"))


def ask(server: Any, folder: Path, **settings: Any) -> Verdict:
    return client(server, folder, **settings).distributions([question()])[0]


def certain(answer: str) -> dict[str, float]:
    return {choice: float(choice == answer) for choice in SCALE}


def test_one_reply_is_a_single_answer(endpoint: Any, tmp_path: Path) -> None:
    assert ask(endpoint, tmp_path) == Distribution(certain("4"), "single", 1.0)
    (body,) = endpoint.bodies
    assert (body["model"], body["temperature"], body["logprobs"]) == ("some-model", 0.0, True)


def test_log_probabilities_make_a_distribution(
    endpoint: Any, tmp_path: Path, completion: Callable[..., Any]
) -> None:
    top = [{"token": "4", "logprob": math.log(0.6)}, {"token": "5", "logprob": math.log(0.2)}]
    logprobs = {"content": [{"token": "4", "logprob": math.log(0.6), "top_logprobs": top}]}
    endpoint.script = lambda body, call: completion("4", logprobs=logprobs)
    verdict = ask(endpoint, tmp_path)
    assert isinstance(verdict, Distribution)
    assert verdict.mode == "logprobs"
    assert verdict.probabilities == pytest.approx({**certain("0"), "4": 0.75, "5": 0.25})
    assert verdict.mass == pytest.approx(0.8)


def test_log_probabilities_that_are_no_numbers_are_no_reply(
    endpoint: Any, tmp_path: Path, completion: Callable[..., Any]
) -> None:
    listed = {"content": [{"token": "4", "logprob": "likely"}]}
    endpoint.script = lambda body, call: completion("4", logprobs=None if call else listed)
    assert ask(endpoint, tmp_path) == Distribution(certain("4"), "single")
    assert len(endpoint.bodies) == 2


def test_samples_where_there_are_no_log_probabilities(
    endpoint: Any, tmp_path: Path, completion: Callable[..., Any]
) -> None:
    replies = ["4", "4", "I can't say", "2"]
    endpoint.script = lambda body, call: completion(replies[call])
    verdict = ask(endpoint, tmp_path, samples=4)
    assert isinstance(verdict, Distribution)
    assert (verdict.mode, verdict.mass) == ("samples", 0.75)
    assert verdict.probabilities == pytest.approx({**certain("0"), "4": 2 / 3, "2": 1 / 3})
    assert {body["temperature"] for body in endpoint.bodies} == {1.0}


def test_an_endpoint_that_refuses_log_probabilities_is_asked_without(
    endpoint: Any, tmp_path: Path, completion: Callable[..., Any], scripted: Any
) -> None:
    def script(body: dict[str, Any], call: int) -> Any:
        return scripted(400, b"no logprobs here") if "logprobs" in body else completion("3")

    endpoint.script = script
    judge = client(endpoint, tmp_path)
    assert judge.distributions([question()]) == [Distribution(certain("3"), "single")]
    judge.distributions([question("another")])
    assert ["logprobs" in body for body in endpoint.bodies] == [True, False, False]


def test_one_bad_request_takes_nobodys_log_probabilities(
    endpoint: Any, tmp_path: Path, completion: Callable[..., Any], scripted: Any
) -> None:
    def script(body: dict[str, Any], call: int) -> Any:
        long = "too long" in body["messages"][0]["content"]
        return scripted(400, b"context length exceeded") if long else completion("3")

    endpoint.script = script
    judge = client(endpoint, tmp_path)
    assert judge.distributions([question("too long")]) == [
        Unscored("http_400", "context length exceeded")
    ]
    judge.distributions([question("short")])
    assert "logprobs" in endpoint.bodies[-1]


def test_an_endpoint_that_does_not_say_what_it_refuses_is_asked_without(
    endpoint: Any, tmp_path: Path, completion: Callable[..., Any], scripted: Any
) -> None:
    endpoint.script = lambda body, call: (
        scripted(400, b"bad request") if "logprobs" in body else completion("3")
    )
    judge = client(endpoint, tmp_path)
    assert judge.distributions([question()]) == [Distribution(certain("3"), "single")]
    judge.distributions([question("another")])
    assert ["logprobs" in body for body in endpoint.bodies] == [True, False, False]


def test_a_reason_is_kept_behind_its_rating(
    endpoint: Any, tmp_path: Path, completion: Callable[..., Any]
) -> None:
    endpoint.script = lambda body, call: completion("4\n\nNothing makes a reader stop.")
    asked = Question("Rate it.", "Rate it.", (("answer", "x"),), "Score:", SCALE, tokens=200)
    (verdict,) = client(endpoint, tmp_path).distributions([asked])
    assert isinstance(verdict, Distribution)
    assert (verdict.likeliest, verdict.words) == ("4", "4\n\nNothing makes a reader stop.")
    assert endpoint.bodies[0]["max_tokens"] == 200


@pytest.mark.parametrize(
    ("status", "headers", "body", "reason", "requests"),
    [
        (500, {}, b"", "server_error", 3),
        (503, {"Retry-After": "86400"}, b"", "server_error", 1),
        (429, {"Retry-After": "86400"}, b"", "rate_limited", 1),
        (429, {}, b"", "rate_limited", 3),
        (401, {}, b"who are you", "key_refused", 1),
        (403, {}, b"", "key_refused", 1),
        (404, {}, b"no such model", "http_404", 1),
        (302, {"Location": "http://127.0.0.1:9/"}, b"", "redirect", 1),
        (200, {}, b"<html>Log in</html>", "not_json", 3),
        (200, {}, b"", "not_json", 3),
        (200, {}, b'{"error": "overloaded"}', "not_json", 3),
        (200, {}, b'{"choices": []}', "not_json", 3),
        (200, {}, b'{"choices": [{"message": {"content": ["4"]}}]}', "not_json", 3),
        (200, {}, b"[" * 100_000, "not_json", 3),
        (200, {"Content-Encoding": "gzip"}, b"this is no gzip", "connection", 3),
        (200, {}, b"x" * (1 << 21), "too_large", 1),
    ],
)
def test_a_failing_endpoint_is_a_reason_never_a_score(
    endpoint: Any,
    tmp_path: Path,
    scripted: Any,
    status: int,
    headers: dict[str, str],
    body: bytes,
    reason: str,
    requests: int,
) -> None:
    endpoint.script = lambda asked, call: scripted(status, body, headers)
    verdict = ask(endpoint, tmp_path)
    assert isinstance(verdict, Unscored)
    assert (verdict.reason, len(endpoint.bodies)) == (reason, requests)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("8/10", "fraction"),
        ("NaN", "not_a_number"),
        ("11", "out_of_range"),
        ("I'm sorry, but I can't help with that.", "refusal"),
        ('```json\n{"score": 11}\n```', "out_of_range"),
        ("", "no_answer"),
    ],
)
def test_a_reply_without_an_allowed_answer_is_a_reason(
    endpoint: Any, tmp_path: Path, completion: Callable[..., Any], content: str, reason: str
) -> None:
    endpoint.script = lambda body, call: completion(content)
    verdict = ask(endpoint, tmp_path)
    assert isinstance(verdict, Unscored)
    assert verdict.reason == reason


def test_fenced_json_with_one_allowed_score_is_a_score(
    endpoint: Any, tmp_path: Path, completion: Callable[..., Any]
) -> None:
    endpoint.script = lambda body, call: completion('```json\n{"score": 2}\n```')
    assert ask(endpoint, tmp_path) == Distribution(certain("2"), "single")


def test_retry_after_is_waited_for(
    endpoint: Any, tmp_path: Path, completion: Callable[..., Any], scripted: Any
) -> None:
    waits = scripted(429, b"", {"Retry-After": "1"})
    endpoint.script = lambda body, call: completion("4") if call else waits
    started = time.monotonic()
    assert isinstance(ask(endpoint, tmp_path), Distribution)
    assert time.monotonic() - started >= 1.0
    assert len(endpoint.bodies) == 2


def test_a_slow_drip_ends_at_the_deadline(
    endpoint: Any, tmp_path: Path, completion: Callable[..., Any]
) -> None:
    whole = completion("4")
    whole.drip_seconds = 0.05
    endpoint.script = lambda body, call: whole
    started = time.monotonic()
    verdict = ask(endpoint, tmp_path, deadline=0.5)
    assert isinstance(verdict, Unscored)
    assert verdict.reason == "timeout"
    assert time.monotonic() - started < 3


def test_nobody_there_is_a_reason(endpoint: Any, tmp_path: Path) -> None:
    endpoint.url = "http://127.0.0.1:9/v1"
    verdict = ask(endpoint, tmp_path)
    assert isinstance(verdict, Unscored)
    assert verdict.reason == "connection"


def test_after_a_refused_key_no_more_requests_are_sent(
    endpoint: Any, tmp_path: Path, scripted: Any
) -> None:
    endpoint.script = lambda body, call: scripted(401)
    judge = client(endpoint, tmp_path, concurrency=1)
    verdicts = judge.distributions([question(str(i)) for i in range(8)])
    assert {v.reason for v in verdicts if isinstance(v, Unscored)} == {"key_refused"}
    assert len(verdicts) == 8
    assert len(endpoint.bodies) == 1


def test_a_second_run_pays_for_the_failed_ones_only(
    endpoint: Any, tmp_path: Path, completion: Callable[..., Any], scripted: Any
) -> None:
    def fails_on_b(body: dict[str, Any], call: int) -> Any:
        failing = "the second" in body["messages"][0]["content"]
        return scripted(404) if failing else completion("4")

    endpoint.script = fails_on_b
    asked = [question("the first"), question("the second"), question("the third")]
    first = client(endpoint, tmp_path).distributions(asked)
    reasons = [v.reason if isinstance(v, Unscored) else None for v in first]
    assert reasons == [None, "http_404", None]
    endpoint.bodies.clear()
    endpoint.script = lambda body, call: completion("2")
    judge = client(endpoint, tmp_path)
    second = judge.distributions(asked)
    assert [v.likeliest for v in second if isinstance(v, Distribution)] == ["4", "2", "4"]
    assert (len(endpoint.bodies), judge.calls, judge.reused) == (1, 1, 2)


def test_the_same_question_at_the_same_time_is_paid_once(endpoint: Any, tmp_path: Path) -> None:
    verdicts = client(endpoint, tmp_path).distributions([question()] * 5)
    assert verdicts == [Distribution(certain("4"), "single")] * 5
    assert len(endpoint.bodies) == 1


def test_a_request_is_noted_before_it_leaves(endpoint: Any, tmp_path: Path, scripted: Any) -> None:
    noted: list[tuple[int, int]] = []

    def script(body: dict[str, Any], call: int) -> Any:
        with contextlib.closing(sqlite3.connect(tmp_path / "replies.sqlite")) as file:
            noted.append(file.execute("SELECT COUNT(asked), COUNT(text) FROM reply").fetchone())
        return scripted(404)

    endpoint.script = script
    ask(endpoint, tmp_path)
    assert noted == [(1, 0)]


def test_the_budget_is_kept_and_the_rest_says_so(endpoint: Any, tmp_path: Path) -> None:
    # 100 tokens in and 2 out at 10,000 USD per million: 1.02 USD a call.
    judge = client(endpoint, tmp_path, prices=(1e4, 1e4), budget=3.3, concurrency=1)
    verdicts = judge.distributions([question(str(i)) for i in range(6)])
    reasons = [v.reason for v in verdicts if isinstance(v, Unscored)]
    assert set(reasons) == {"budget"}
    assert judge.cost is not None
    assert judge.cost == pytest.approx(1.02 * judge.calls)
    assert judge.cost <= 3.3
    assert judge.calls >= 1


def test_a_budget_needs_a_price(endpoint: Any, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="price of 'some-model' is unknown"):
        client(endpoint, tmp_path, budget=1.0)


def test_the_key_reaches_the_endpoint_and_nothing_else(
    endpoint: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    scripted: Any,
) -> None:
    key = "sk-canary-1234"
    monkeypatch.setenv("HEADRACE_JUDGE_API_KEY", key)
    caplog.set_level(logging.DEBUG, "headrace")
    endpoint.script = lambda body, call: scripted(404, f"no model for {key}".encode())
    verdict = ask(endpoint, tmp_path)
    assert endpoint.authorizations == [f"Bearer {key}"]
    assert verdict == Unscored("http_404", "no model for [key]")
    assert key not in caplog.text
    stored = b"".join(p.read_bytes() for p in tmp_path.glob("replies.sqlite*"))
    assert key.encode() not in stored


@pytest.mark.parametrize(
    ("url", "with_key", "words"),
    [
        ("ftp://host/v1", False, "write http"),
        ("host:8000", False, "write http"),
        ("https://user:pw@host/v1", False, "credentials"),
        ("http://169.254.169.254/v1", False, "link-local"),
        ("http://judge.example/v1", True, "unencrypted"),
    ],
)
def test_d19_addresses_a_judge_must_not_have(url: str, with_key: bool, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        check_url(Endpoint(url, "m"), with_key)


@pytest.mark.parametrize(
    ("url", "chat"),
    [
        ("http://h:1", "http://h:1/v1/chat/completions"),
        ("http://h:1/v1/", "http://h:1/v1/chat/completions"),
        ("http://h:1/x/chat/completions", "http://h:1/x/chat/completions"),
    ],
)
def test_the_chat_address(url: str, chat: str) -> None:
    assert Endpoint(url, "m").chat_url == chat


def test_retry_after_is_a_number_or_a_date() -> None:
    assert retry_after({"retry-after": "7"}) == 7
    assert retry_after({}) == 0
    assert retry_after({"retry-after": "soon"}) == 0
    assert retry_after({"retry-after": "\u00b2"}) == 0
    assert retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0
    assert retry_after({"retry-after": "Wed, 21 Oct 2150 07:28:00 GMT"}) > 1e9


def test_the_number_of_requests_grows_fast_until_the_first_protest() -> None:
    rate_limit = RateLimit(64, 1)
    limits = []
    for _ in range(7):
        limits.append(rate_limit.limit)
        for _ in range(rate_limit.limit):
            rate_limit.speed_up()
    assert limits == [1, 2, 4, 8, 16, 32, 64]
    rate_limit.slow_down(0, time.monotonic())
    for _ in range(rate_limit.limit):
        rate_limit.speed_up()
    assert rate_limit.limit in (32, 33)


def test_many_protests_of_one_round_halve_once() -> None:
    rate_limit, sent = RateLimit(64), time.monotonic()
    for _ in range(20):
        rate_limit.slow_down(0, sent)
    assert rate_limit.limit == 32
    rate_limit.slow_down(0, time.monotonic())
    assert rate_limit.limit == 16


def test_all_slots_are_used_at_once(endpoint: Any, tmp_path: Path, completion: Any) -> None:
    all_inside = threading.Barrier(12)

    def script(body: dict[str, Any], call: int) -> Any:
        all_inside.wait(timeout=30)  # nobody gets a reply before twelve have asked
        return completion("4")

    endpoint.script = script
    judge = client(endpoint, tmp_path, concurrency=12, deadline=60.0)
    verdicts = judge.distributions([question(str(i)) for i in range(36)])
    assert all(isinstance(verdict, Distribution) for verdict in verdicts)
    assert len(endpoint.bodies) == 36


def test_an_attempt_that_hangs_leaves_time_for_another(
    endpoint: Any, tmp_path: Path, completion: Callable[..., Any]
) -> None:
    def script(body: dict[str, Any], call: int) -> Any:
        reply = completion("4")
        reply.drip_seconds = 0.0 if call else 1.0
        return reply

    endpoint.script = script
    assert isinstance(ask(endpoint, tmp_path, deadline=1.0), Distribution)
    assert len(endpoint.bodies) == 2


def test_an_endpoint_that_is_slow_is_waited_for(
    endpoint: Any,
    tmp_path: Path,
    completion: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As long as it says, whatever it says, that it is there; all its connections are taken."""
    monkeypatch.setattr(silence, "SILENCE_SECONDS", 2.0)

    def script(body: dict[str, Any], call: int) -> Any:
        while not endpoint.looks:
            time.sleep(0.01)
        return completion("4")

    endpoint.script = script
    judge = client(endpoint, tmp_path, deadline=120.0, concurrency=2)
    verdicts = judge.distributions([question(str(i)) for i in range(2)])
    assert all(isinstance(verdict, Distribution) for verdict in verdicts), verdicts
    assert (len(endpoint.bodies), endpoint.looks[:1]) == (2, ["/v1/models"])


def test_an_endpoint_that_hangs_is_told_from_a_slow_one(
    endpoint: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections are taken, and nothing comes: long before the deadline it is asked no more."""
    assert 2 * silence.SILENCE_SECONDS <= 20
    monkeypatch.setattr(silence, "SILENCE_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        endpoint.url = f"http://127.0.0.1:{mute.getsockname()[1]}/v1"
        judge = client(endpoint, tmp_path, deadline=3600.0)
        verdicts = judge.distributions([question(str(i)) for i in range(8)])
    assert {v.reason for v in verdicts if isinstance(v, Unscored)} == {"hangs"}
    assert "it hangs, and is not slow" in str(verdicts[0]) and judge.calls == 16


def test_a_proxy_is_for_other_machines_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", "near.example")
    assert proxy_of("https://far.example/v1") == "http://proxy.example:3128"
    assert proxy_of("https://near.example/v1") is None
    assert proxy_of("http://127.0.0.1:8000/v1") is None
