"""Faults of the programs that these scores are known from, each with what ours does instead.

The judges' are in tests/evaluation/judging.
"""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.evaluation.overlap.rouge import rouge
from tasks.evaluation.overlap.scores import METRICS, Manner, columns, score
from tasks.evaluation.overlap.stemmer import stem

NAMES = [m for m in METRICS if m not in ("bertscore", "learned")]
texts = st.text(alphabet="ab ä語😀.\n\u2028\0", max_size=12)


def fmeasure(metric: str, prediction: str, references: list[str], **how: Any) -> float:
    return rouge([prediction], [references], [metric], **how)[0][metric]["fmeasure"]


def test_letters_beyond_ascii_count() -> None:
    """rouge-score drops them: a perfect summary in Russian scores 0."""
    assert fmeasure("rouge2", "мельница стоит у реки", ["Мельница стоит у реки."]) == 1.0
    assert fmeasure("rouge1", "水車 が 回る", ["水車 が 止まる"]) == pytest.approx(2 / 3)
    assert fmeasure("rouge1", "мельница", ["мельница"], script="ascii") == 0.0  # as it does


def test_several_references_are_pooled_as_the_original_does_where_asked() -> None:
    """rouge-score knows the maximum alone; ROUGE-1.5.5's formula A adds counts up."""
    references = ["a b c d", "a x"]
    assert fmeasure("rouge1", "a b", references, formula="A") == pytest.approx(0.6)
    assert fmeasure("rouge1", "a b", references) == pytest.approx(2 / 3)


def test_a_corpus_value_is_there() -> None:
    """rouge-score averages nothing itself."""
    corpus = score(["a b", "x"], [["a b"], ["y"]], ["rouge1"])["corpus"]
    assert corpus["rouge1"] == {"precision": 0.5, "recall": 0.5, "fmeasure": 0.5}


def test_sentences_are_lines_in_the_union_and_nowhere_else() -> None:
    """Of ROUGE-L over one long line no union is taken; rougeL and rougeLsum are told apart."""
    prediction, reference = "c d\na b", "a b\nc d"
    assert fmeasure("rougeLsum", prediction, [reference]) == 1.0
    assert fmeasure("rougeL", prediction, [reference]) == 0.5


def test_skip_bigrams_and_weighted_runs_exist() -> None:
    """rouge-score has no W, S or SU."""
    values = [fmeasure(m, "a b c", ["a c b"]) for m in ("rougeW", "rougeS", "rougeSU4")]
    assert values[1] == pytest.approx(2 / 3) and 0 < values[0] < 1 and 0 < values[2] < 1


def test_short_words_are_not_stemmed_and_stems_are_remembered() -> None:
    """ROUGE-1.5.5 stems words of over three letters; rouge-score stems each of them every time."""
    assert fmeasure("rouge1", "was", ["wa"], stem=True) == 0.0
    stem.cache_clear()
    rouge(["running running"] * 50, [["runs running"]] * 50, ["rouge1"], stem=True)
    assert stem.cache_info().misses == 2


@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=3))
def test_no_text_gives_a_score_that_is_no_number(pairs: list[tuple[str, str]]) -> None:
    """One NaN of one row, as of deepeval or ragas, would be the mean of all."""
    found = columns([a for a, _ in pairs], [[b] for _, b in pairs], NAMES)
    for name, column in found.items():
        # More edits than the reference has words are possible.
        top = math.inf if name == "ter" else 100 if name in ("bleu", "chrf", "chrf++") else 1
        for value in [column.figure(), *(column.figure([i]) for i in range(len(pairs)))]:  # type: ignore[arg-type]
            assert math.isfinite(value) and 0 <= value <= top + 1e-9, name


def test_every_number_says_how_it_was_made() -> None:
    """A number without its options cannot be repeated: each choice shows in a signature."""
    plain = score(["a b"], [["a b"]], NAMES)["signatures"]
    assert set(plain) == set(NAMES) and all("|" in text for text in plain.values())
    for manner, changed in (
        (Manner(stem=True), "rougeL"),
        (Manner(formula="A"), "rouge1"),
        (Manner(script="ascii"), "rougeSU4"),
        (Manner(tokenize="intl"), "bleu"),
        (Manner(smooth="add-k", smooth_value=1), "bleu"),
        (Manner(chrf_eps=True), "chrf"),
    ):
        found = columns(["a b"], [["a b"]], NAMES, manner)
        other = {name: column.signature for name, column in found.items()}
        assert other[changed] != plain[changed]
        assert other["meteor"] == plain["meteor"] and other["exact"] == plain["exact"]
