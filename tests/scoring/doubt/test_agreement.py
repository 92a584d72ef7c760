import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.errors import BadInput
from tasks.scoring.doubt.agreement import agree, agree_file
from tasks.scoring.doubt.statistics import interval, mean_interval, resamples


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_published_correlations(eval_data: Path) -> None:
    raw = (eval_data / "unieval/qags_cnndm_result.json.gz").read_bytes()
    rows = json.loads(gzip.decompress(raw))
    scores = [row["predict_scores"]["consistency"] for row in rows]
    humans = [row["scores"]["consistency"] for row in rows]
    result = agree(scores, humans)
    assert result["n"] == 235
    assert result["pearson"] == pytest.approx(0.681681, abs=1e-6)
    assert result["spearman"] == pytest.approx(0.662255, abs=1e-6)
    assert result["kendall"] == pytest.approx(0.531636, abs=1e-6)
    for name, (low, high) in result["interval"].items():
        assert low < result[name] < high


def test_by_group_is_the_mean_of_the_groups_that_vary() -> None:
    scores, humans = [1, 2, 3, 1, 2, 3, 5, 5, 5], [1, 2, 3, 3, 2, 1, 1, 2, 3]
    result = agree(scores, humans, ["a"] * 3 + ["b"] * 3 + ["c"] * 3)
    assert result["by_group"] == {
        "pearson": pytest.approx(0.0),
        "spearman": pytest.approx(0.0),
        "kendall": pytest.approx(0.0),
        "groups": 2,
        "skipped": 1,
    }


def test_a_constant_column_has_no_correlation() -> None:
    result = agree([1, 1, 1, 1], [1, 2, 3, 4])
    assert result["pearson"] is None
    assert result["interval"]["kendall"] == [None, None]


def test_unscored_rows_are_counted_not_used(tmp_path: Path) -> None:
    rows = [{"score": s, "human": h} for s, h in ((1, 1), (2, 2), (3, 4), (None, 5))]
    result = agree_file(write(tmp_path / "s.jsonl", *rows), "human")
    assert (result["n"], result["unscored"]) == (3, 1)
    assert result["spearman"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"score": 1}, "line 4 has no field 'human'"),
        ({"score": "high", "human": 1}, "line 4: 'score' is 'high', expected a finite number"),
        ({"score": math.nan, "human": 1}, "line 4: 'score' is nan"),
        ({"score": True, "human": 1}, "line 4: 'score' is True"),
        ([1], "line 4 is not a JSON object"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, row: Any, words: str) -> None:
    good = [{"score": i, "human": i} for i in range(3)]
    with pytest.raises(BadInput, match=words):
        agree_file(write(tmp_path / "s.jsonl", *good, row), "human")


def test_two_rows_are_too_few(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", *({"score": i, "human": i} for i in range(2)))
    with pytest.raises(BadInput, match="2 rows"):
        agree_file(path, "human")


def test_the_interval_of_a_mean_is_about_two_standard_errors() -> None:
    values = np.random.default_rng(1).normal(10, 2, 400)
    low, high = mean_interval(values.tolist())
    assert low == pytest.approx(values.mean() - 1.96 * 0.1, abs=0.03)
    assert high == pytest.approx(values.mean() + 1.96 * 0.1, abs=0.03)
    assert (low, high) == mean_interval(values.tolist())


def test_groups_are_drawn_whole_and_widen_the_interval() -> None:
    groups = [i // 10 for i in range(100)]
    values = [float(group) for group in groups]
    assert all(len(rows) == 100 for rows in resamples(100, groups, count=5))
    alone, together = mean_interval(values), mean_interval(values, groups)
    assert together[1] - together[0] > 2 * (alone[1] - alone[0])


def test_no_statistics_no_interval() -> None:
    assert all(math.isnan(end) for end in interval([]))
