import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster import watchdog
from cluster.errors import BadInput
from cluster.processes import Process, spawn, stop

SLEEP = ["sleep", "100"]


def until(condition: Callable[[], bool]) -> bool:
    """Whether something becomes true within generous time."""
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


@pytest.fixture
def watched(fresh_home: Path) -> dict[str, Process]:
    """A record of services under watch; what is restarted is recorded."""
    record: dict[str, Process] = {}

    def restart(name: str, dead: Process) -> None:
        assert record[name] == dead
        record[name] = spawn(name, SLEEP, {})

    watchdog.keep(lambda: dict(record), restart)
    return record


def kill(process: Process) -> None:
    time.sleep(3 * watchdog.POLL_SECONDS)  # let it be seen
    os.kill(process.pid, signal.SIGKILL)


def test_a_service_that_is_killed_is_started_again(watched: dict[str, Process]) -> None:
    first = watched["a"] = spawn("a", SLEEP, {})
    other = watched["b"] = spawn("b", SLEEP, {})
    kill(first)
    assert until(lambda: watched["a"] != first and watched["a"].alive)
    assert watched["b"] == other
    for process in watched.values():
        stop(process)


def test_a_service_that_died_before_anybody_watched_is_started_again(fresh_home: Path) -> None:
    dead = spawn("a", SLEEP, {})
    os.kill(dead.pid, signal.SIGKILL)
    assert until(lambda: not dead.alive)
    down = dead.model_copy(update={"pid": 0})
    again: list[str] = []
    watchdog.keep(lambda: {"a": dead, "b": down}, lambda name, _: again.append(name))
    assert until(lambda: bool(again))
    time.sleep(3 * watchdog.POLL_SECONDS)
    assert again == ["a"]


def test_a_service_that_was_taken_down_stays_down(watched: dict[str, Process]) -> None:
    watched["a"] = spawn("a", SLEEP, {})
    time.sleep(3 * watchdog.POLL_SECONDS)
    down = watched.pop("a")
    stop(down)
    watched["a"] = down.model_copy(update={"pid": 0})
    time.sleep(3 * watchdog.POLL_SECONDS)
    assert not watched["a"].alive


def test_a_service_that_keeps_dying_is_given_up(
    watched: dict[str, Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "MOST_RESTARTS", 2)
    watched["a"] = spawn("a", SLEEP, {})
    for _ in range(2):
        dying = watched["a"]
        kill(dying)
        assert until(lambda: watched["a"] != dying)  # noqa: B023
    last = watched["a"]
    kill(last)
    assert until(lambda: not last.alive)
    time.sleep(3 * watchdog.POLL_SECONDS)
    assert watched["a"] == last


def test_a_record_that_cannot_be_read_for_a_moment_does_not_end_the_watch() -> None:
    told = iter([BadInput("the home is a file"), OSError("stale file handle")])
    calls: list[int] = []

    def read() -> dict[str, Process]:
        calls.append(len(calls))
        for error in told:
            raise error
        return {}

    watchdog.keep(read, lambda name, dead: None)
    assert until(lambda: len(calls) > 3)
