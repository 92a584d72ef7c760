"""A replay endpoint that serves stored replies with every fault an endpoint has been seen to have,
and a judge killed in the middle: the same scores as without, no row lost, nothing paid twice.
"""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tasks.evaluation.judging.client import EndpointJudge
from tasks.evaluation.judging.endpoint import Endpoint
from tasks.evaluation.judging.questions import Distribution, Question, moments
from tasks.evaluation.judging.replies import Reply, read_choice
from tasks.evaluation.judging.reply_store import ReplyStore
from tasks.evaluation.statistics.agreement import agree

SCALE = ("1", "2", "3")
FAULTS = (
    "429", "an hour", "500", "503", "cut", "cut short", "empty", "html", "prose", "two objects",
    "8/10", "11", "-1", "NaN", "null", "refusal", "drip", "hang",
)  # fmt: skip


def stored(folder: Path, count: int) -> tuple[dict[str, str], dict[str, float]]:
    """The first reply and the human rating of each item."""
    items = json.loads(gzip.decompress((folder / "topical_chat_360.json.gz").read_bytes()))
    path = folder / "chatgpt_0613_n20_naturalness_coherence.jsonl.gz"
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    wanted = [r for r in rows if (r["prompt_variant"], r["attribute"]) == ("geval", "coherence")]
    replies = {f"item {r['idx']} of all": r["responses"][0] for r in wanted[:count]}
    humans = {f"item {r['idx']} of all": items[r["idx"]]["scores"]["coherence"] for r in wanted}
    return replies, humans


class Replay:
    """Serves each stored reply; with `faults`, a different fault before each of them."""

    def __init__(self, replies: dict[str, str], faults: bool, completion: Any, scripted: Any):
        self.replies, self.faults = replies, faults
        self.completion, self.scripted = completion, scripted
        self.asked: Counter[str] = Counter()

    def __call__(self, body: dict[str, Any], call: int) -> Any:
        prompt = body["messages"][0]["content"]
        item = next(name for name in self.replies if name in prompt)
        self.asked[item] += 1
        if self.faults and self.asked[item] == 1:
            return self.fault(FAULTS[list(self.replies).index(item) % len(FAULTS)], item)
        return self.completion(self.replies[item])

    def fault(self, name: str, item: str) -> Any:
        reply = self.replies[item]
        whole = self.completion(reply).body
        rating = read_choice(Reply(reply), SCALE)
        responses = {
            "429": self.scripted(429, b"", {"Retry-After": "0"}),
            "an hour": self.scripted(429, b"", {"Retry-After": "3600"}),
            "500": self.scripted(500, b"oops"),
            "503": self.scripted(503, b"<html>busy</html>", {"Retry-After": "0"}),
            "cut": self.scripted(200, whole[: len(whole) // 2]),
            "cut short": self.scripted(200, whole[:-9], missing=9),
            "empty": self.scripted(200, b""),
            "html": self.scripted(200, b"<html>Just a moment...</html>"),
            "prose": self.completion(f'Sure! {{"score": {rating}}} I hope that this helps.'),
            "two objects": self.completion('{"score": 1} {"score": 3}'),
            "null": self.completion('{"score": null}'),
            "NaN": self.completion('{"score": NaN}'),
            "refusal": self.completion("I'm sorry, but I can't rate people."),
            "drip": self.scripted(200, whole, drip_seconds=0.001),
            "hang": self.scripted(200, whole, drip_seconds=0.2),
        }
        return responses.get(name) or self.completion(name)


def question(item: str) -> Question:
    return Question("Rate it.", "Rate it.", (("answer", item),), "Coherence:", SCALE)


def scores(server: Any, path: Path, replies: dict[str, str]) -> dict[str, float]:
    endpoint = Endpoint(server.url, "m", backoff=0.01, patience=0.2, deadline=3.0, concurrency=8)
    judge = EndpointJudge(endpoint, ReplyStore(path))
    verdicts = judge.distributions([question(item) for item in replies])
    assert all(isinstance(v, Distribution) for v in verdicts), verdicts
    return {
        item: moments(v.probabilities)[0]
        for item, v in zip(replies, verdicts, strict=True)
        if isinstance(v, Distribution)
    }


def test_faults_change_nothing_and_lose_nothing(
    eval_data: Path, tmp_path: Path, endpoint: Any, completion: Any, scripted: Any
) -> None:
    replies, humans = stored(eval_data / "topical_chat", 3 * len(FAULTS))
    tables = []
    for faults in (False, True):
        endpoint.script = Replay(replies, faults, completion, scripted)
        found = scores(endpoint, tmp_path / f"{faults}.sqlite", replies)
        tables.append(agree([found[i] for i in replies], [humans[i] for i in replies], resamples=9))
        assert min(found.values()) >= 1
    assert tables[0] == tables[1]
    assert tables[0]["n"] == len(replies)


KILLED = """
import sys
from pathlib import Path
from tests.evaluation.judging.test_replay import question
from tasks.evaluation.judging.client import EndpointJudge
from tasks.evaluation.judging.endpoint import Endpoint
from tasks.evaluation.judging.reply_store import ReplyStore
endpoint = Endpoint(sys.argv[1], "m", concurrency=4, backoff=0.01, patience=0.05, deadline=3.0)
judge = EndpointJudge(endpoint, ReplyStore(Path(sys.argv[2])))
judge.distributions([question(f"item {i} of all") for i in range(100)])
"""


@pytest.mark.parametrize("faults", [False, True])
def test_after_a_kill_no_reply_that_arrived_is_asked_for_again(
    tmp_path: Path, endpoint: Any, completion: Any, scripted: Any, faults: bool
) -> None:
    replies = {f"item {i} of all": "2" for i in range(100)}
    replay = Replay(replies, faults, completion, scripted)

    def slowly(body: dict[str, Any], call: int) -> Any:
        time.sleep(0.02)
        return replay(body, call)

    endpoint.script = slowly
    path = tmp_path / "replies.sqlite"
    command = [sys.executable, "-c", KILLED, endpoint.url, str(path)]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[3], env=dict(os.environ))
    while sum(replay.asked.values()) < (140 if faults else 50):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(0.5)  # for the server to count what was on its way
    before = Counter(replay.asked)
    endpoint.script = lambda body, call: scripted(404)
    kept = whole(endpoint.url, path, replies)
    endpoint.script = slowly
    assert set(scores(endpoint, path, replies).values()) == {2.0}
    asked = replay.asked - before
    assert len(kept) >= 20
    assert not set(asked) & kept
    if not faults:
        assert 0 <= sum(before.values()) - len(kept) <= 4  # those that were under way
        assert set(asked.values()) == {1}


def whole(url: str, path: Path, replies: dict[str, str]) -> set[str]:
    """The items whose answer is in the store: they need no reply."""
    judge = EndpointJudge(Endpoint(url, "m", backoff=0.001, attempts=1), ReplyStore(path))
    verdicts = judge.distributions([question(item) for item in replies])
    found = zip(replies, verdicts, strict=True)
    return {item for item, verdict in found if isinstance(verdict, Distribution)}


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEADRACE_JUDGE_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
