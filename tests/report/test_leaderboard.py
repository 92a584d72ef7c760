"""The leaderboard, from artifacts made up to look like finished ones."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from cluster.artifact import Artifact
from cluster.store import Spec, Store
from tasks.report.leaderboard import Entry, entries, render

SIGNATURE = "capitals|choice|rows:50@0123456789ab|headrace:2"


def make(store: Store, stage: str, inputs: dict[str, Any], seed: int, **fields: Any) -> Artifact:
    spec = Spec(stage, 1, "mine", {"seed": seed}, inputs)
    with store.writer(spec), store.draft(spec) as draft:
        for name, value in fields.items():
            setattr(draft, name, value)
    return Artifact.load(store.folder(spec))


def sat(store: Store, model: str, value: float, seed: int, signature: str = SIGNATURE) -> None:
    part = {"value": value, "interval": [value - 0.1, value + 0.1], "n": 50}
    split = {"clean": part | {"value": value - 0.05, "n": 40}, "dirty": part | {"n": 10}}
    facts = {
        "model": model,
        "exam": "capitals",
        "kind": "choice",
        "results": {
            "accuracy": {**part, "baseline": 0.25, **split},
            "accuracy_unnormalised": {**part, "baseline": 0.25, **split},
        },
        "unscored": {"timeout": 2},
        "signature": signature,
    }
    make(store, "exam", {}, seed, rows=52, facts=facts)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path)
    shards = make(store, "shards", {}, 0)
    model = make(store, "pretrain", {"shards": shards.fingerprint}, 0)
    made_of = {"model": model.fingerprint, "shards": shards.fingerprint}
    make(
        store,
        "evaluate",
        made_of,
        0,
        metrics={"bits_per_byte": 2.5, "bits_per_byte_witten_bell": 3.1, "heldout_loss": 4.0},
        facts={"tokens": 9000, "objective": "causal", "intervals": {"bits_per_byte": [2.4, 2.6]}},
    )
    make(
        store,
        "classify",
        {"model": model.fingerprint},
        0,
        metrics={
            "accuracy": 0.8,
            "accuracy_low": 0.7,
            "accuracy_high": 0.9,
            "accuracy_majority": 0.3,
            "rows": 64.0,
        },
    )
    tuned = make(store, "instruct", {"model": model.fingerprint}, 0)
    make(
        store,
        "answers",
        {"instruct": tuned.fingerprint},
        0,
        rows=24,
        metrics={"answers_rougeL": 0.1, "answers_bleu": 1.5},
        facts={
            "signatures": {"rougeL": "rougeL|words:unicode", "bleu": "bleu|13a"},
            "intervals": {"rougeL": [0.05, 0.2], "bleu": [1.0, 2.0]},
        },
    )
    make(
        store,
        "judge",
        {"instruct": tuned.fingerprint},
        0,
        rows=16,
        facts={
            "judge": "<b>judge</b>",
            "means": {"geval_fluency": 3.5, "qag_min": None},
            "intervals": {"geval_fluency": [3.0, 4.0], "qag_min": None},
            "baselines": {"geval_fluency": 1.2},
        },
    )
    sat(store, "small", 0.4, 1)
    sat(store, "large", 0.6, 2)
    sat(store, "large", 0.7, 3)  # again, later
    sat(store, "large", 0.9, 4, signature="capitals|choice|rows:9@ffff|headrace:2")
    return store


def by_task(found: list[Entry], metric: str) -> dict[tuple[str, str], Entry]:
    return {(one.model, one.signature): one for one in found if one.metric == metric}


def test_every_model_and_task_has_its_figure_once(store: Store) -> None:
    found = entries(store)
    accuracy = by_task(found, "accuracy")
    assert accuracy["large", SIGNATURE].value == 0.7
    assert accuracy["small", SIGNATURE].interval == (0.4 - 0.1, 0.4 + 0.1)
    assert accuracy["small", SIGNATURE].n == 50 and accuracy["small", SIGNATURE].unscored == 2
    (heldout,) = by_task(found, "bits_per_byte").values()
    assert heldout.model.startswith("pretrain/mine-")
    assert (heldout.interval, heldout.n, heldout.baseline) == ((2.4, 2.6), 9000, 3.1)
    (judged,) = by_task(found, "geval_fluency").values()
    assert (judged.interval, judged.baseline, judged.n) == ((3.0, 4.0), 1.2, 16)
    assert not by_task(found, "qag_min")  # not one row was scored
    assert sum(one.task == "capitals" for one in found) == 6


class Tables(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data


def test_the_page_shows_them_best_first_with_doubt_and_split(store: Store) -> None:
    page = render(entries(store))
    parser = Tables()
    parser.feed(page)
    rows = [[" ".join(cell.split()) for cell in row] for row in parser.rows]
    header = ["model", "value", "", "95 % interval", "n", "a guess", "clean (n)", "dirty (n)"]
    place = next(i for i, row in enumerate(rows) if row == header and rows[i + 1][1] == "0.7")
    assert rows[place + 1][:2] == ["large", "0.7"]
    assert rows[place + 1][3:6] == ["0.6 to 0.8", "50+ 2 unscored", "0.25"]
    assert rows[place + 1][6].startswith("0.65 (40)") and rows[place + 1][7].startswith("0.7 (10)")
    assert rows[place + 2][0] == "small"
    assert "<b>judge</b>" not in page and "&lt;b&gt;judge" in page
    assert not re.search(r'(src|href)="?http', page)
    assert rows[0][1:] and "capitals" in rows[0][1]  # models by tasks


def test_nothing_measured_says_how_to(tmp_path: Path) -> None:
    assert "headrace exam MODEL EXAM.yaml" in render(entries(Store(tmp_path)))
