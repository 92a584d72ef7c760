"""Variants side by side, from scores made up to look like those of trained models."""

import csv
import json

import pytest

from cluster.artifact import Artifact
from cluster.stage import build
from cluster.store import Spec, Store
from tasks.scaling.variants.stage import compare

KEY = "model.depth"


def score(store, number, metrics=None, stage="evaluate", **facts):
    spec = Spec(stage, 1, "mine", {"number": number}, {})
    with store.writer(spec), store.draft(spec) as draft:
        draft.metrics = metrics or {}
        draft.facts = facts
    return Artifact.load(store.folder(spec))


def compared(tmp_path, losses, **facts):
    """The comparison of {label: losses by seed}; a string is why there is none."""
    store = Store(tmp_path)
    about = {"objective": "causal", "bytes": 1000} | facts
    scores, runs = [], []
    for depth, (label, values) in enumerate(losses.items(), start=1):
        for seed, loss in enumerate(values):
            failed = {"status": "diverged", "why": loss} if isinstance(loss, str) else None
            found = {} if failed else {"heldout_loss": 2 * loss, "bits_per_byte": loss}
            scores.append(score(store, len(scores), found, **(failed or about)))
            runs.append({"label": label, "values": {KEY: depth}, "seed": seed, "network": {}})
    return build(compare, store, scores=scores, runs=runs)


def test_a_variant_that_wins_with_every_seed_is_best(tmp_path):
    table = compared(tmp_path, {"depth=1": [3.0, 3.2, 3.1], "depth=2": [2.0, 2.21, 2.1]})
    facts = table.manifest.facts
    first, second = facts["variants"]
    assert facts["best"] == {KEY: 2} and facts["why_no_best"] is None
    assert table.manifest.metrics == {"bits_per_byte": second["mean"]}
    assert (first["difference"], first["p"], first["better"]) == (None, None, None)
    assert (second["n"], second["status"], second["better"]) == (3, "finished", True)
    assert second["difference"]["mean"] == pytest.approx(-0.99667, abs=1e-5)
    assert second["p"] < 0.001 < second["interval"][0] < second["mean"]
    assert facts["rows"][3] == {
        "variant": "depth=2",
        "seed": 0,
        KEY: 2,
        "heldout_loss": 4.0,
        "bits_per_byte": 2.0,
    }


def test_of_a_tuning_the_higher_accuracy_is_best(tmp_path):
    store, scores, runs = Store(tmp_path), [], []
    for depth, values in enumerate([(0.5, 0.52, 0.51), (0.8, 0.83, 0.81)], start=1):
        for seed, accuracy in enumerate(values):
            found = {"accuracy": accuracy, "rows": 100.0}
            scores.append(score(store, len(scores), found, stage="classify"))
            about = {"label": f"depth={depth}", "values": {KEY: depth}, "network": {}}
            runs.append({**about, "seed": seed})
    facts = build(compare, store, scores=scores, runs=runs).manifest.facts
    assert facts["metric"] == "accuracy" and facts["higher_is_better"]
    assert facts["best"] == {KEY: 2}
    second = facts["variants"][1]
    assert second["better"] and second["difference"]["mean"] == pytest.approx(0.3033, abs=1e-3)
    low, high = second["difference"]["interval"]
    assert 0 < low < second["difference"]["mean"] < high
    assert second["ranges"]["accuracy"] == {"mean": pytest.approx(0.8133, abs=1e-3)} | {
        "low": 0.8,
        "high": 0.83,
    }


def test_the_lowest_mean_alone_is_not_best(tmp_path):
    losses = {"depth=1": [3.0, 3.2, 3.1], "depth=2": [2.9, 3.21, 3.05]}
    facts = compared(tmp_path, losses).manifest.facts
    assert facts["best"] is None
    assert facts["why_no_best"].startswith("depth=2 is not shown to be better than depth=1: 3 seed")


def test_one_seed_shows_nothing(tmp_path):
    table = compared(tmp_path, {"depth=1": [3.0], "depth=2": [2.0]})
    facts = table.manifest.facts
    assert (facts["best"], table.manifest.metrics) == (None, {})
    assert facts["why_no_best"] == "one seed: no spread is known, add --seeds 5"
    assert facts["variants"][1]["difference"] == {"mean": -1.0, "interval": None, "n": 1}
    json.dumps(facts, allow_nan=False)


def test_a_variant_that_diverged_once_stays_in_the_table_and_is_never_best(tmp_path):
    losses = {
        "depth=1": [3.0, 3.2, 3.1, 3.3],
        "depth=2": [1.0, 1.2, "the loss is nan at step 7", 1.3],
        "depth=3": [2.0, 2.21, 2.1, 2.3],
        "depth=4": ["out"] * 4,
    }
    facts = compared(tmp_path, losses).manifest.facts
    first, torn, good, gone = facts["variants"]
    assert facts["best"] == good["values"] == {KEY: 3}
    assert (torn["n"], torn["status"], torn["difference"]["n"]) == (3, "diverged", 3)
    assert torn["why"] == "seed 2: the loss is nan at step 7"
    assert (gone["n"], gone["mean"], gone["difference"], gone["better"]) == (0, None, None, None)
    assert facts["rows"][6]["status"] == "diverged" and first["status"] == "finished"
    json.dumps(facts, allow_nan=False)


def test_a_diverged_baseline_leaves_the_others_to_each_other(tmp_path):
    losses = {"a": ["nan", 3.0, 3.1], "b": [2.0, 2.2, 2.1], "c": [1.0, 1.21, 1.1]}
    facts = compared(tmp_path, losses).manifest.facts
    assert facts["best"] == {KEY: 3}
    assert facts["variants"][2]["difference"]["n"] == 2


def test_other_objectives_and_other_texts_are_told(tmp_path):
    store = Store(tmp_path)
    runs = [{"label": str(i), "values": {KEY: i % 2}, "seed": i // 2} for i in range(4)]
    runs = [run | {"label": f"depth={run['values'][KEY]}", "network": {}} for run in runs]
    scores = [
        score(
            store,
            i,
            {"heldout_loss": 1.0 + i % 2},
            objective="masked" if i % 2 else "causal",
            bytes=1000 + i % 2,
        )
        for i in range(4)
    ]
    facts = build(compare, store, scores=scores, runs=runs).manifest.facts
    assert facts["metric"] == "heldout_loss"
    assert facts["why_no_best"].startswith("the objectives differ (causal, masked)")
    assert "1,000 to 1,001 bytes" in facts["warnings"][0]


def test_the_file_has_a_row_a_run_and_a_row_a_variant(tmp_path):
    table = compared(tmp_path, {"depth=1": [3.0, 3.5], "depth=2": [2.0, "nan at step 7"]})
    with table.file("variants.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["seed"] for row in rows] == ["0", "1", "0", "1", "mean", "mean"]
    assert [row["variant"] for row in rows[-2:]] == ["depth=1", "depth=2"]
    assert [float(row["bits_per_byte"]) for row in rows[-2:]] == [3.25, 2.0]
    assert rows[3]["status"] == rows[-1]["status"] == "diverged" and not rows[4]["status"]
