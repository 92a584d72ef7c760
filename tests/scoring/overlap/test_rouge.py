import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.scoring.overlap.rouge import METRICS, rouge, signature
from tasks.scoring.overlap.stemmer import stems

texts = st.text(alphabet="abc \n", max_size=40)


def fmeasure(metric: str, prediction: str, *references: str, stem: bool = False) -> float:
    return rouge([prediction], [references], [metric], stem)[0][metric]["fmeasure"]


def test_the_textbook_pair() -> None:
    # Lin 2004, section 3: "police killed the gunman" and what each part sees of it.
    reference, s2, s3 = (
        "police killed the gunman",
        "police kill the gunman",
        "the gunman kill police",
    )
    assert fmeasure("rougeL", s2, reference) == 0.75
    assert fmeasure("rougeL", s3, reference) == 0.5
    assert fmeasure("rouge2", s2, reference) == pytest.approx(1 / 3)
    assert fmeasure("rougeS", s2, reference) == 0.5  # 3 of 6 skip-bigrams
    assert fmeasure("rougeS", s3, reference) == pytest.approx(1 / 6)
    assert fmeasure("rougeSU4", s2, reference) == 0.6  # 3 + 3 of 6 + 4


def test_weighted_lcs_prefers_runs() -> None:
    # Lin 2004, section 3.3: the same LCS of 4, once in a run and once scattered.
    reference = "a b c d e f g"
    run, scattered = "a b c d h i k", "a h b k c i d"
    assert fmeasure("rougeL", run, reference) == fmeasure("rougeL", scattered, reference)
    assert fmeasure("rougeW", run, reference) == pytest.approx(4 / 7)
    assert fmeasure("rougeW", scattered, reference) == pytest.approx((4 / 7**1.2) ** (1 / 1.2))


def test_union_lcs_over_sentences() -> None:
    # Lin 2004, section 3.2: w1 w2 w3 w4 w5 against two sentences that share w1 w2 and w1 w3 w5.
    prediction, reference = "w1 w2 w6 w7 w8\nw1 w3 w8 w9 w5", "w1 w2 w3 w4 w5"
    (row,) = rouge([prediction], [[reference]], ["rougeLsum"])
    assert row["rougeLsum"]["recall"] == 4 / 5
    assert row["rougeLsum"]["precision"] == 4 / 10


def test_skip_distance_four_allows_four_words_between() -> None:
    reference = "a b"
    near, far = "a x x x x b", "a x x x x x b"
    recall = [rouge([p], [[reference]], ["rougeSU4"])[0]["rougeSU4"]["recall"] for p in (near, far)]
    assert recall == [1.0, 2 / 3]


def test_several_references_best_or_pooled() -> None:
    references = [["a b c d", "a x"]]
    (best,) = rouge(["a b"], references, ["rouge1"])
    assert best["rouge1"] == {"precision": 1.0, "recall": 0.5, "fmeasure": pytest.approx(2 / 3)}
    (pooled,) = rouge(["a b"], references, ["rouge1"], multi_reference="pool")
    assert pooled["rouge1"]["precision"] == 3 / 4
    assert pooled["rouge1"]["recall"] == 3 / 6


def test_letters_of_any_script_are_words() -> None:
    assert fmeasure("rouge1", "Größe мир", "größe Мир!") == 1.0


def test_stems_are_compared_only_when_asked() -> None:
    assert fmeasure("rouge1", "relational ponies", "relate pony") == 0.0
    assert fmeasure("rouge1", "relational ponies", "relate pony", stem=True) == 1.0
    assert "stem:no" in signature("rouge1", stem=False)
    assert "stem:porter" in signature("rouge1", stem=True)


def test_stems_are_porters() -> None:
    assert stems(["caresses", "hopping", "generalization", "sky", "größer", "a_b"]) == {
        "caresses": "caress",
        "hopping": "hop",
        "generalization": "gener",
        "sky": "sky",
        "größer": "größer",
        "a_b": "a_b",
    }


@given(texts, texts)
def test_scores_are_shares_and_symmetric(a: str, b: str) -> None:
    names = list(METRICS)
    ((forth,), (back,)) = rouge([a], [[b]], names), rouge([b], [[a]], names)
    for name in names:
        assert all(0 <= value <= 1 + 1e-12 for value in forth[name].values())
        if name != "rougeLsum":  # whose union is taken over the reference's sentences
            assert forth[name]["precision"] == pytest.approx(back[name]["recall"])


@given(texts)
def test_a_text_matches_itself(text: str) -> None:
    words = len(text.split())
    for name, values in rouge([text], [[text]], list(METRICS))[0].items():
        needed = 2 if name in ("rouge2", "rougeS") else 1
        assert values["fmeasure"] == pytest.approx(1.0 if words >= needed else 0.0)


def test_summaries_scored_by_the_original_perl_program(eval_data: Path) -> None:
    lines = (eval_data / "rouge/multiling2011_first6.jsonl").read_text().splitlines()
    expected = json.loads((eval_data / "rouge/multiling2011_expected_first6.json").read_text())
    perl = next(v for k, v in expected.items() if k.startswith("perl"))
    rows = [json.loads(line) for line in lines]
    predictions = ["\n".join(r["summary"]["text"]) for r in rows]
    references = [["\n".join(t["text"]) for t in r["references"]] for r in rows]
    names = {"rouge1": "rouge-1", "rouge2": "rouge-2", "rougeLsum": "rouge-l"}
    ours = rouge(predictions, references, [*names, "rougeSU4"], stem=True, multi_reference="pool")
    # What is left between them is the list of irregular forms (was -> be), which we do not have.
    allowed = {"rouge1": 0.8, "rouge2": 0.15, "rougeLsum": 0.8, "rougeSU4": 0.7}
    for row, published in zip(ours, perl, strict=True):
        for name, theirs in {**names, "rougeSU4": "rouge-su4"}.items():
            for part, other in (("recall", "recall"), ("precision", "precision")):
                gap = abs(100 * row[name][part] - published[theirs][other])
                assert gap < allowed[name], (name, gap)
    exact = [abs(100 * r["rouge2"]["recall"] - p["rouge-2"]["recall"]) < 0.001
             for r, p in zip(ours, perl, strict=True)]  # fmt: skip
    assert exact.count(True) == 5
