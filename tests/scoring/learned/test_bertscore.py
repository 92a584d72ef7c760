"""BERTScore over a tiny encoder: its arithmetic, layers and baseline."""

from pathlib import Path
from typing import Any

import pytest

from cluster.errors import BadInput
from tasks.scoring.learned.bertscore import BertScore
from tasks.scoring.learned.embeddings import TextEncoder

TEXTS = ["def add_1(left, right)", "return left", "größer"]


@pytest.fixture
def folder(tiny: Any) -> Path:
    return Path(tiny.model.path)


def test_a_text_is_most_like_itself(folder: Path) -> None:
    rows, signature = BertScore(folder).score(TEXTS, [[text] for text in TEXTS])
    assert all(row["fmeasure"] == pytest.approx(1, abs=1e-5) for row in rows)
    assert "layer:1" in signature and "baseline:no" in signature


def test_precision_and_recall_are_greedy_matches(folder: Path) -> None:
    known = TextEncoder(folder).embed(TEXTS)
    a, b = known[TEXTS[0]], known[TEXTS[1]]
    alike = a.vectors_TD @ b.vectors_TD.T
    rows, _ = BertScore(folder).score([TEXTS[0]], [[TEXTS[1]]])
    assert rows[0]["precision"] == pytest.approx(float(alike.max(1).values.mean()), abs=1e-5)
    assert rows[0]["recall"] == pytest.approx(float(alike.max(0).values.mean()), abs=1e-5)


def test_company_does_not_matter_and_nothing_scores_nothing(folder: Path) -> None:
    alone, _ = BertScore(folder).score([TEXTS[0]], [[TEXTS[2]]])
    among, _ = BertScore(folder).score([TEXTS[1], TEXTS[0], ""], [[TEXTS[1]], [TEXTS[2]], ["x"]])
    assert among[1]["fmeasure"] == pytest.approx(alone[0]["fmeasure"], abs=1e-5)
    assert among[2] == {"precision": 0.0, "recall": 0.0, "fmeasure": 0.0}


def test_the_baseline_becomes_zero(folder: Path, tmp_path: Path) -> None:
    plain, _ = BertScore(folder).score([TEXTS[0]], [[TEXTS[1]]])
    baseline = tmp_path / "base.tsv"
    baseline.write_text("LAYER,P,R,F\n0,0,0,0\n1,0.5,0.5,0.5\n")
    moved, signature = BertScore(folder, 1, baseline).score([TEXTS[0]], [[TEXTS[1]]])
    assert moved[0]["recall"] == pytest.approx((plain[0]["recall"] - 0.5) / 0.5, abs=1e-5)
    assert "baseline:base.tsv" in signature


def test_a_layer_that_is_not_there_is_refused(folder: Path) -> None:
    with pytest.raises(BadInput, match="layers 1 to 1"):
        BertScore(folder, 7).score(["a"], [["a"]])
