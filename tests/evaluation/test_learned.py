"""A metric fitted to human choices."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.errors import BadInput
from tasks.evaluation.learned import LearnedMetric, damage, learn_file, tau
from tasks.evaluation.overlap.scores import METRICS, Manner, columns, figure, summary
from tasks.evaluation.predictions import score_files

TEXT = "the river carries cold water from high hills to an old mill near our town"


def write(path: Path, count: int = 24) -> Path:
    random = np.random.default_rng(0)
    rows = []
    for i in range(count):
        ref = " ".join(random.permutation(TEXT.split())[:9]) + f" in {1900 + i}."
        better, worse = damage(ref, 0.1, random), damage(ref, 0.7, random)
        rows.append({"src": f"s{i}", "ref": ref, "better": better, "worse": worse})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_it_learns_what_is_better_and_says_how_well(tmp_path: Path) -> None:
    result = learn_file(write(tmp_path / "pairs.jsonl"), tmp_path / "metric.json")
    assert (result["pairs"], result["documents"]) == (24, 24)
    assert result["tau"] > 0.7
    assert result["interval"][0] <= result["tau"] <= result["interval"][1]
    manner = Manner(learned=tmp_path / "metric.json")
    texts = ["the old mill in 1901.", "the the town"]
    found = summary(columns(texts, [["the old mill in 1901."]] * 2, ["learned"], manner), 2)
    first, second = (row["learned"] for row in found["rows"])
    assert first > second
    assert found["signatures"]["learned"].startswith("learned|file:")


def test_every_scorer_has_a_signature_an_interval_and_a_paired_test(
    tiny: Any, tmp_path: Path
) -> None:
    learn_file(write(tmp_path / "pairs.jsonl"), tmp_path / "metric.json")
    manner = Manner(encoder=tiny.model.path, learned=tmp_path / "metric.json")
    random = np.random.default_rng(1)
    texts = [" ".join(random.permutation(TEXT.split())) for _ in range(12)]
    files = []
    for name, share in (("better", 0.1), ("worse", 0.8)):
        rows = [{"prediction": damage(t, share, random), "reference": t} for t in texts]
        files.append(tmp_path / f"{name}.jsonl")
        files[-1].write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = score_files([files[0]], METRICS, manner, against=files[1])
    for metric in METRICS:
        low, high = result["intervals"][metric]
        assert low <= figure(result["corpus"][metric]) <= high
        test = result["difference"][metric]
        assert test["interval"][0] <= test["difference"] <= test["interval"][1]
        assert test["signature"] == result["signatures"][metric]
        assert 0 < test["p"] <= 1 and (test["p"] < 0.05 or metric in ("exact", "bertscore"))
    same = score_files([files[0]], METRICS, manner, against=files[0])["difference"]
    assert {(test["difference"], test["p"]) for test in same.values()} == {(0.0, 1.0)}


def test_a_tie_counts_against() -> None:
    assert tau(np.array([1.0, 0.0, -1.0, 2.0])) == 0.0


def test_a_file_that_is_no_metric_is_refused(tmp_path: Path) -> None:
    (tmp_path / "metric.json").write_text("{}")
    with pytest.raises(BadInput, match="no learned metric"):
        LearnedMetric.read(tmp_path / "metric.json")
    with pytest.raises(BadInput, match="5 documents or more"):
        learn_file(write(tmp_path / "pairs.jsonl", 3))
