"""A metric fitted to human choices."""

import json
from pathlib import Path

import numpy as np
import pytest

from cluster.errors import BadInput
from tasks.scoring.learned.metric import LearnedMetric, damage, learn_file, tau
from tasks.scoring.overlap.scores import Manner, score

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
    found = score(texts, [["the old mill in 1901."]] * 2, ["learned"], manner)
    first, second = (row["learned"] for row in found["rows"])
    assert first > second
    assert found["signatures"]["learned"].startswith("learned|file:")


def test_a_tie_counts_against() -> None:
    assert tau(np.array([1.0, 0.0, -1.0, 2.0])) == 0.0


def test_a_file_that_is_no_metric_is_refused(tmp_path: Path) -> None:
    (tmp_path / "metric.json").write_text("{}")
    with pytest.raises(BadInput, match="no learned metric"):
        LearnedMetric.read(tmp_path / "metric.json")
    with pytest.raises(BadInput, match="5 documents or more"):
        learn_file(write(tmp_path / "pairs.jsonl", 3))
