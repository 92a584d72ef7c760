"""The worked examples of the page on evaluation, by hand: rows and figures stand there as here."""

import json
from math import exp
from pathlib import Path
from typing import Any

import pytest

from tasks.evaluation.judging.files import Assignment, judge_file
from tasks.evaluation.overlap.scores import score
from tests.pages import ROOT, blocks

FILES = {one.title: one.text for one in blocks(ROOT / "docs/guide/evaluation.md") if one.title}


def scores(metrics: str) -> dict[str, Any]:
    rows = [json.loads(line) for line in FILES["overlap.jsonl"].splitlines()]
    texts, references = [row["prediction"] for row in rows], [row["references"] for row in rows]
    found = score(texts, references, metrics.split(","))["rows"]
    return {row["id"]: one for row, one in zip(rows, found, strict=True)}


def test_seven_times_the() -> None:
    """Clipped by the largest count in one reference: 1 of 7, and 2 of 7 where one has it twice."""
    found = scores("bleu,rouge1")
    assert found["clipped"]["rouge1"]["precision"] == pytest.approx(1 / 7)
    assert found["well known"]["rouge1"]["precision"] == pytest.approx(2 / 7)
    # Of n-grams without a match sacreBLEU counts a half, a quarter, an eighth.
    smoothed = (1 / 12 * 1 / 20 * 1 / 32) ** 0.25
    for name, once in (("clipped", 1 / 7), ("well known", 2 / 7)):
        assert found[name]["bleu"] == pytest.approx(100 * once**0.25 * smoothed)
    assert found["short"]["bleu"] == pytest.approx(100 * exp(1 - 6 / 4))


def test_overlap() -> None:
    found = scores("rouge1,rouge2,rougeL,rougeS,meteor")["turned"]
    figures = [found[name]["fmeasure"] for name in ("rouge1", "rouge2", "rougeL", "rougeS")]
    assert figures == pytest.approx([1, 4 / 5, 3 / 6, 6 / 15])
    assert found["meteor"] == pytest.approx(1 - 0.5 * (2 / 6) ** 3)


@pytest.mark.parametrize(
    ("file", "metric", "told"),
    [
        ("rated.jsonl", "geval", {"score": 4.5, "spread": 0.5}),
        ("summary.jsonl", "summary", {"coverage": 1 / 3, "alignment": 1 / 2, "score": 1 / 3}),
        ("claims.jsonl", "qag", {"coverage": 1 / 3, "alignment": 1 / 2, "mean": 5 / 12}),
        ("samples.jsonl", "selfcheck", {"parts": [0.0, 1.0], "score": 0.5}),
    ],
)
def test_judges(
    file: str, metric: str, told: dict[str, Any], tmp_path: Path, fresh_home: Path
) -> None:
    rows = tmp_path / file
    rows.write_text(FILES[file])
    (found,) = judge_file(rows, Assignment(metric=metric), None)["rows"]
    for name, figure in told.items():
        assert found[name] == pytest.approx(figure), name
