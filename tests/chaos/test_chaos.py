"""Runs under a seeded nemesis come to the clean result, or say what brings them there."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tasks.evaluation.judging.questions import Question
from tests.chaos.__main__ import named_in
from tests.chaos.nemesis import KINDS, Fault, cut, drawn, fail, strike
from tests.chaos.witness import Witness, question
from tests.endpoint import Server, completion

ROOT = Path(__file__).parents[2]


def test_a_seed_says_what_is_done() -> None:
    many = [drawn(seed) for seed in range(100)]
    assert many == [drawn(seed) for seed in range(100)]
    assert {fault.kind for faults in many for fault in faults} == set(KINDS)
    assert all(1 <= len(faults) <= 3 and faults == sorted(faults, key=when) for faults in many)


def when(fault: Fault) -> float:
    return fault.when


def test_a_process_of_the_home_is_struck_and_no_other(tmp_path: Path) -> None:
    sleeps = [sys.executable, "-c", "import time; time.sleep(60)"]
    judge = Server("", lambda body, call: completion("4"))
    mine, other = (
        subprocess.Popen(sleeps, env=os.environ | {"HEADRACE_HOME": str(home)})
        for home in (tmp_path, tmp_path / "other")
    )
    try:
        psutil.Process(mine.pid).status()
        assert strike(Fault("stop", "command", 0.1, 60), tmp_path, mine.pid, judge)
        deadline = time.monotonic() + 20
        while psutil.Process(mine.pid).status() != psutil.STATUS_STOPPED:
            assert time.monotonic() < deadline
        assert not strike(Fault("kill", "raylet", 0.1, 1), tmp_path, mine.pid, judge)
        assert strike(Fault("kill", "command", 0.1, 1), tmp_path, mine.pid, judge)
        assert mine.wait(10) == -signal.SIGKILL and other.poll() is None
        assert not strike(Fault("kill", "command", 0.1, 1), tmp_path, other.pid, judge)
    finally:
        for process in (mine, other):
            process.kill()
            process.wait()


def test_a_judge_fails_as_often_as_it_is_told_to() -> None:
    judge = Server("", lambda body, call: completion("4"))
    fail(judge, Fault("judge", "error", 0.1, 2))
    assert [judge.script({}, call).status for call in range(4)] == [503, 503, 200, 200]


def test_what_a_message_names_is_done() -> None:
    judge = Server("", lambda body, call: completion("4"))
    fail(judge, Fault("judge", "error", 0.1, 20))
    assert named_in("steps: judge 'j' wrote no steps. Mend that and run again", judge) == []
    assert judge.script({}, 0).status == 200
    assert named_in("run `headrace run RECIPE --rebuild read`", judge) == ["--rebuild", "read"]
    assert named_in("the disk is full", judge) is None


def test_a_file_of_an_artifact_is_cut_in_two(tmp_path: Path) -> None:
    path = tmp_path / "artifacts" / "read" / "a" / "rows"
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(100))
    assert cut(tmp_path, 0) == "artifacts/read/a/rows" and path.stat().st_size == 50


def test_homes_ask_the_same_questions_between_marks_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(home: str, answer: str) -> dict[str, object]:
        monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / home))
        text = Question("Rate it.", "", (("answer", answer),), "Score:", ("1", "2")).text()
        return {"messages": [{"role": "user", "content": text}]}

    one, same, other = asked("a", "a wheel"), asked("b", "a wheel"), asked("b", "a weir")
    assert one != same and question(one) == question(same) != question(other)


def test_a_question_too_many_or_too_few_is_no_clean_result() -> None:
    clean = Witness("d", "t", "l", ["a", "b"])
    assert replace(clean, questions=["a", "c"]).differs(clean, unasked=True) == [
        "1 other questions"
    ]
    assert replace(clean, questions=["a"]).differs(clean, unasked=True) == []
    assert replace(clean, losses="x", questions=["a"]).differs(clean, unasked=False) == [
        "losses",
        "1 questions not asked",
    ]


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_twenty_seeds_come_to_the_clean_result(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.chaos", str(tmp_path), "--seeds", "0-19"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    told = json.loads(ran.stdout.splitlines()[-1])
    assert ran.returncode == 0 and told["seeds"] == 20, ran.stdout + ran.stderr[-2000:]
