import threading
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from cluster import prefect_progress
from cluster.placement import Placement
from cluster.prefect_progress import ProgressArtifact
from cluster.settings import Settings
from cluster.stage import specify, stage
from cluster.store import Draft
from flows.stage_tasks import Call, build_stage


class Server:
    """What Prefect's server is told: the keys and the percentages."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.percents: list[float] = []
        self.answers = threading.Event()
        self.answers.set()

    def create(self, percent: float, key: str, description: str) -> Any:
        self.answers.wait(10)
        self.keys.append(key)
        self.percents.append(percent)
        return uuid4()

    def update(self, _: Any, percent: float) -> None:
        self.percents.append(percent)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    told = Server()
    monkeypatch.setattr(prefect_progress, "create_progress_artifact", told.create)
    monkeypatch.setattr(prefect_progress, "update_progress_artifact", told.update)
    return told


def test_a_built_stage_is_at_a_hundred_under_a_key_of_its_recipe(server: Server) -> None:
    for recipe in ("My Recipe", "other_1"):
        progress = ProgressArtifact(recipe, "sweep/d16-t4k")
        progress({"done": 1, "total": 50})
        progress.finish()
    assert server.keys == ["my-recipe-sweep-d16-t4k", "other-1-sweep-d16-t4k"]
    assert server.percents == [2, 100, 2, 100]


def test_a_stage_that_showed_no_progress_shows_no_end(server: Server) -> None:
    ProgressArtifact("r", "read").finish()
    assert server.keys == []


def test_a_slow_server_does_not_hold_a_stage_up(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefect_progress, "PROGRESS_SECONDS", 0.0)
    server.answers.clear()
    progress = ProgressArtifact("r", "pretrain")
    for done in range(5):
        progress({"done": done, "total": 10})
    assert server.percents == []
    server.answers.set()
    progress.finish()
    assert server.percents == [0, 100]


def test_a_server_that_refuses_is_warned_of_once(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("refused")

    monkeypatch.setattr(prefect_progress, "create_progress_artifact", refuse)
    monkeypatch.setattr(prefect_progress, "PROGRESS_SECONDS", 0.0)
    progress = ProgressArtifact("r", "pretrain")
    for done in range(5):
        progress({"done": done, "total": 10})
        time.sleep(0.02)
    progress.finish()
    assert [r.message for r in caplog.records] == ["progress of r: pretrain is not shown: refused"]


class Nothing(Settings):
    pass


@stage(version=1)
def grind(settings: Nothing, draft: Draft) -> None:
    draft.progress(1, 50, "rows")


def test_a_stage_of_a_run_ends_at_a_hundred(server: Server, tmp_path: Path) -> None:
    """Reports come twice a second at most: the last that a stage makes may be far from its end."""
    literals = {"settings": Nothing()}
    call = Call(
        url_secrets={},
        name="grind",
        spec=specify(grind, "My Recipe", {}, literals),
        function=grind,
        literals=literals,
        placement=Placement(),
        root=tmp_path,
        tracking_parent=None,
        forced=False,
        work={},
    )
    build_stage.fn(call, {})
    assert (server.keys, server.percents) == (["my-recipe-grind"], [2, 100])
