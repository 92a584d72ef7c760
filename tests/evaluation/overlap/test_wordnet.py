"""WordNet's words, from a small folder laid out as wndb(5WN) says."""

from pathlib import Path

import pytest

from cluster.errors import BadInput
from tasks.evaluation.overlap.meteor import meteor, signature
from tasks.evaluation.overlap.rouge import rouge
from tasks.evaluation.overlap.rouge import signature as rouge_signature
from tasks.evaluation.overlap.wordnet import irregular_forms, synonyms

SYNSETS = {
    "noun": [("car", "auto", "motor_car"), ("child", "kid")],
    "verb": [("be", "exist"), ("buy", "purchase")],
    "adj": [("quick", "fast(p)")],
    "adv": [],
}
EXCEPTIONS = {"noun": "children child\n", "verb": "was be\nbought buy\n", "adj": "", "adv": ""}


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for kind, synsets in SYNSETS.items():
        data, index = "  1 This text takes the place of the licence.\n", {}
        for words in synsets:
            offset = len(data)
            members = " ".join(f"{word} 0" for word in words)
            data += f"{offset:08d} 06 {kind[0]} {len(words):02x} {members} 000 | a gloss\n"
            for word in words:
                lemma = word.split("(")[0]
                index[lemma] = f"{lemma} {kind[0]} 1 0 1 0 {offset:08d}\n"
        (tmp_path / f"data.{kind}").write_text(data)
        (tmp_path / f"index.{kind}").write_text("  1 licence\n" + "".join(index.values()))
        (tmp_path / f"{kind}.exc").write_text(EXCEPTIONS[kind])
    monkeypatch.setenv("WNSEARCHDIR", str(tmp_path))
    return tmp_path


def test_words_share_a_meaning_in_any_form(planted: Path) -> None:
    assert synonyms("cars") == {"cars", "car", "auto"}  # an ending detached; no phrases
    assert synonyms("bought") == {"bought", "buy", "purchase"}  # an irregular form
    assert synonyms("quick") == {"quick", "fast"}  # a mark of position is no part of the word
    assert synonyms("unknown") == {"unknown"}


def test_meteor_matches_synonyms_last_where_asked(planted: Path) -> None:
    pair = ["a kid bought the auto"], [["a child bought the car"]]
    three_of_five = (1 - 0.5 * (2 / 3) ** 3) * 0.6
    assert meteor(*pair) == [pytest.approx(three_of_five)]
    assert meteor(*pair, synonyms=True) == [pytest.approx(1 - 0.5 / 5**3)]
    assert "stages:exact+stem+wordnet" in signature(synonyms=True)
    # A verb's stem may be no word, and then has no synonyms: NLTK's way, whose values these are.
    assert meteor(["he purchased it"], [["he bought it"]], synonyms=True)[0] < 0.7


def test_rouge_replaces_irregular_forms_before_stemming(planted: Path) -> None:
    assert irregular_forms() == {"children": "child", "was": "be", "bought": "buy"}
    pair = ["the children bought it"], [["the child buy it"]]
    for formula, recall in (("best", 0.5), ("A", 1.0), ("B", 1.0)):
        (row,) = rouge(*pair, ["rouge1"], stem=True, formula=formula)  # type: ignore[arg-type]
        assert row["rouge1"]["recall"] == recall
    assert "wordnet-exceptions" in rouge_signature("rouge1", stem=True, formula="A")
    assert "wordnet-exceptions" not in rouge_signature("rouge1", stem=True)


def test_without_wordnet_nothing_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WNSEARCHDIR", str(tmp_path))
    assert irregular_forms() == {}
    assert meteor(["a b c d"], [["a b c d"]])[0] > 0.99
    with pytest.raises(BadInput, match=r"install it \(Debian: wordnet-base\)"):
        meteor(["the auto"], [["the car"]], synonyms=True)
