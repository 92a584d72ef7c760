"""The lines that a run without a terminal writes: how far, how fast, how long still."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from cluster.settings import Settings
from cluster.stage import build, stage
from cluster.store import Draft, Store
from flows.plan.dag import Dag, Node
from flows.views.progress import EVERY_SECONDS, Pace, Teller, watch


class Nothing(Settings):
    pass


@stage(version=1, name="pretrain")
def train(settings: Nothing, draft: Draft) -> None:
    pass


def planned(root: Path) -> tuple[Store, Node]:
    store = Store(root)
    return store, Dag("mill", store).add(train, settings=Nothing())


def report(store: Store, node: Node, **values: Any) -> None:
    store.scratch(node.spec).mkdir(parents=True, exist_ok=True)
    (store.scratch(node.spec) / "progress.json").write_text(json.dumps(values))


def test_a_stage_tells_rate_and_time_left_now_and_then(tmp_path: Path) -> None:
    store, node = planned(tmp_path)
    teller, now = Teller(store, [node]), time.time()
    assert list(teller.lines(now)) == []
    figures: dict[str, Any] = {
        "total": 1400,
        "unit": "steps",
        "loss": 2.3124,
        "tokens_per_second": 14_210.0,
    }
    report(store, node, done=1000, **figures)
    assert list(teller.lines(now)) == []
    report(store, node, done=1200, **figures)
    assert list(teller.lines(now + EVERY_SECONDS - 1)) == []
    (line,) = teller.lines(now + 20)
    assert line == ("pretrain: 1,200 of 1,400 steps, 14.2k tokens/s, loss 2.31, about 20 s left")
    assert list(teller.lines(now + 21)) == []
    with store.draft(node.spec) as draft:
        draft.rows = 7
        draft.progress(1400, **figures)
    (line,) = teller.lines(now + 22)
    assert line.startswith("1 of 1: pretrain, ") and line.endswith(
        " s, 7 rows, 14.2k tokens/s, loss 2.31"
    )


def test_a_stage_that_reports_nothing_is_said_to_be_under_way(tmp_path: Path) -> None:
    store, node = planned(tmp_path)
    store.scratch(node.spec).mkdir(parents=True)
    teller, now = Teller(store, [node]), time.time()
    assert list(teller.lines(now)) == []
    assert list(teller.lines(now + 16)) == ["pretrain: under way for 16 s"]


def test_bytes_and_phases_have_rates_of_their_own() -> None:
    pace = Pace(0.0)
    pace.take({"done": 0, "total": 4e6, "unit": "bytes"}, 0.0)
    pace.take({"done": 2e6, "total": 4e6, "unit": "bytes"}, 10.0)
    assert pace.words(10.0) == "2MB of 4MB, 200kB/s, about 10 s left"
    pace.take({"done": 1, "total": 9, "unit": "blocks, near"}, 20.0)
    assert pace.words(20.0) == "1 of 9 blocks, near"
    pace.take({"done": 5, "total": 9, "unit": "blocks, near"}, 22.0)
    assert pace.words(22.0) == "5 of 9 blocks, near, 2 blocks/s, about 2.0 s left"


def test_what_an_earlier_run_left_is_no_progress(tmp_path: Path) -> None:
    store, node = planned(tmp_path)
    report(store, node, done=5, total=10, unit="steps")
    teller = Teller(store, [node])
    teller.began += 100
    list(teller.lines(teller.began))
    assert list(teller.lines(teller.began + 16)) == ["pretrain: under way for 16 s"]


def test_a_run_without_a_terminal_is_told_of_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dag = Dag("mill", Store(tmp_path))
    node = dag.add(train, settings=Nothing())
    with watch(dag):
        build(train, dag.store, spec=node.spec, settings=Nothing())
    assert capsys.readouterr().err.startswith("1 of 1: pretrain, ")
