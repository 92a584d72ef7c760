import gzip
import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cluster.errors import BadInput
from tasks.evaluation.statistics.agreement import agree, agree_file
from tasks.evaluation.statistics.intervals import bootstrap, mean_interval, resamples


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    ("name", "aspect", "rows", "pearson", "spearman", "kendall"),
    [
        ("qags_cnndm", "consistency", 235, 0.681681, 0.662255, 0.531636),
        ("sfres", "naturalness", 1181, 0.367252, 0.333399, 0.247094),
    ],
)
def test_published_correlations(
    eval_data: Path,
    name: str,
    aspect: str,
    rows: int,
    pearson: float,
    spearman: float,
    kendall: float,
) -> None:
    raw = (eval_data / f"unieval/{name}_result.json.gz").read_bytes()
    found = json.loads(gzip.decompress(raw))
    scores = [row["predict_scores"][aspect] for row in found]
    result = agree(scores, [row["scores"][aspect] for row in found], resamples=50)
    assert result["n"] == rows
    assert result["pearson"] == pytest.approx(pearson, abs=1e-6)
    assert result["spearman"] == pytest.approx(spearman, abs=1e-6)
    assert result["kendall"] == pytest.approx(kendall, abs=1e-6)
    for correlation, (low, high) in result["interval"].items():
        assert low < result[correlation] < high


@pytest.mark.parametrize(
    ("judge", "false_pass", "false_fail"), [("naive", 5, 11), ("deepeval", 8, 5)]
)
def test_published_errors_of_two_judges(
    eval_data: Path, tmp_path: Path, judge: str, false_pass: int, false_fail: int
) -> None:
    """70 answers known to be right or wrong, three verdicts each; the majority counts."""
    raw = (eval_data / f"judge_reliability_bc038/eval_{judge}.jsonl.gz").read_bytes()
    rows = [json.loads(line) for line in gzip.decompress(raw).splitlines()]
    verdicts: dict[str, list[int]] = {}
    for row in rows:
        verdicts.setdefault(row["case_id"], []).append(int(row["verdict_pass"]))
    cases = [
        {"score": int(sum(v) > 1), "human": int(name.endswith("-correct")), "repeats": v}
        for name, v in verdicts.items()
    ]
    result = agree_file(write(tmp_path / "s.jsonl", *cases), "human", raters=("repeats",))
    assert result["n"] == 70
    assert result["errors"] == {"false_pass": false_pass, "false_fail": false_fail}
    assert 0.8 < result["alpha"]["interval"]["alpha"] <= 1


def test_alpha_between_judges_counts_rows_without_a_human_rating(tmp_path: Path) -> None:
    rows = [{"human": None, "score": i, "other": i} for i in range(5)]
    rows += [{"human": i, "score": i, "other": None if i == 1 else i} for i in range(3)]
    result = agree_file(write(tmp_path / "s.jsonl", *rows), "human", raters=("score", "other"))
    assert (result["alpha"]["interval"]["alpha"], result["alpha"]["ordinal"]["units"]) == (1.0, 7)
    with pytest.raises(BadInput, match="no field 'third'"):
        agree_file(write(tmp_path / "s.jsonl", *rows), "human", raters=("score", "third"))


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


def test_the_interval_is_scipys_bca_of_the_same_resamples() -> None:
    from scipy import stats

    data = np.random.default_rng(1).lognormal(0, 1.2, 40)
    found = bootstrap(lambda rows: [data[rows].mean(), data[rows].std()], len(data), count=300)
    for number, statistic in enumerate((np.mean, np.std)):
        drawn = SimpleNamespace(bootstrap_distribution=found.drawn_RS[:, number])
        theirs = stats.bootstrap(
            (data,), statistic, n_resamples=0, method="BCa", bootstrap_result=drawn
        ).confidence_interval
        assert found.interval(number) == pytest.approx(tuple(theirs), rel=1e-9)


def test_the_skewness_of_many_rows_is_that_of_blocks_of_them() -> None:
    data = np.random.default_rng(2).lognormal(0, 1, 1000)
    found = bootstrap(lambda rows: [data[rows].mean()], len(data), count=300)
    assert len(found.without_BS) == 200
    every = [[(data.sum() - value) / (len(data) - 1)] for value in data]
    exact = replace(found, without_BS=np.array(every)).interval()
    assert found.interval() == pytest.approx(exact, abs=0.1 * (exact[1] - exact[0]))
    low, high = np.quantile(found.drawn_RS, [0.025, 0.975])
    assert exact[0] > low and exact[1] > high


@pytest.mark.parametrize("values", [[2.0] * 9, [0.1 + 0.2, 0.3] * 5, [7.0]])
def test_what_does_not_vary_has_an_interval_of_no_width(values: list[float]) -> None:
    assert mean_interval(values) == pytest.approx((values[0], values[0]))
    assert mean_interval(values, ["one"] * len(values)) == pytest.approx((values[0], values[0]))


def test_no_statistics_no_interval() -> None:
    assert all(math.isnan(end) for end in bootstrap(lambda _: [math.nan], 5, count=9).interval())
