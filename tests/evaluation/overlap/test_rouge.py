import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.evaluation.overlap.rouge import METRICS, rouge, signature
from tasks.evaluation.overlap.stemmer import stem
from tasks.evaluation.overlap.wordnet import irregular_forms

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
    (pooled,) = rouge(["a b"], references, ["rouge1"], formula="A")
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
    words = ("caresses", "hopping", "generalization", "sky", "größer", "a_b")
    assert [stem(word) for word in words] == ["caress", "hop", "gener", "sky", "größer", "a_b"]


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
        needed = {"rouge2": 2, "rougeS": 2, "rouge3": 3, "rouge4": 4}.get(name, 1)
        assert values["fmeasure"] == pytest.approx(1.0 if words >= needed else 0.0)


@pytest.mark.parametrize("wordnet", [False, True])
def test_summaries_scored_by_the_original_perl_program(
    eval_data: Path, wordnet: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if not wordnet:
        monkeypatch.setenv("WNSEARCHDIR", str(tmp_path))
    elif not irregular_forms():
        pytest.skip("WordNet's lists are not installed (Debian: wordnet-base)")
    lines = (eval_data / "rouge/multiling2011_first6.jsonl").read_text().splitlines()
    expected = json.loads((eval_data / "rouge/multiling2011_expected_first6.json").read_text())
    perl = next(v for k, v in expected.items() if k.startswith("perl"))
    rows = [json.loads(line) for line in lines]
    predictions = ["\n".join(r["summary"]["text"]) for r in rows]
    references = [["\n".join(t["text"]) for t in r["references"]] for r in rows]
    ours = rouge(predictions, references, list(PERL), stem=True, formula="A")
    for row, published in zip(ours, perl, strict=True):
        for name, (theirs, *allowed) in PERL.items():
            for part, other in (("recall", "recall"), ("precision", "precision")):
                gap = abs(100 * row[name][part] - published[theirs][other])
                assert gap <= allowed[wordnet], (name, gap)


# Ours: the original's, and the points of difference without and with its list of irregular forms.
PERL = {
    "rouge1": ("rouge-1", 0.81, 0.41),
    "rouge2": ("rouge-2", 0.81, 0.41),
    "rouge3": ("rouge-3", 0.81, 0.41),
    "rouge4": ("rouge-4", 0.81, 0.41),
    "rougeLsum": ("rouge-l", 1.8, 1.0),
    "rougeSU4": ("rouge-su4", 1.15, 0.41),
}


def test_the_best_reference_by_recall_and_the_pool() -> None:
    references = [["a b c d", "a b"]]
    (by_f,) = rouge(["a b x"], references, ["rouge1"])
    (b,) = rouge(["a b c"], [["a b", "a b c d e f"]], ["rouge1"], formula="B")
    assert by_f["rouge1"]["recall"] == 1.0
    assert b["rouge1"] == {
        "precision": pytest.approx(2 / 3),
        "recall": 1.0,
        "fmeasure": pytest.approx(0.8),
    }


def test_words_of_ascii_alone_as_rouge_score_has_them() -> None:
    (row,) = rouge(["naïve cat"], [["na ve cat"]], ["rouge1"], script="ascii")
    assert row["rouge1"]["fmeasure"] == 1.0
    assert "words:ascii" in signature("rouge1", stem=False, script="ascii")
