import json
import random

import numpy as np
import pyarrow as pa
import pytest

from cluster.errors import BadInput
from cluster.settings import contents
from tasks.data.filtering import learned
from tasks.data.filtering.classifier import Classifier, Features, cross_validate
from tasks.data.filtering.languages import identify, known_languages
from tasks.data.filtering.settings import (
    BadWordSettings,
    FilterSettings,
    LanguageSettings,
    PerplexitySettings,
    QualitySettings,
)

GOOD = "the miller explains how water turns the wheel and why grain must be dry before it is ground"
BAD = "click here best price buy now free offer limited deal win cash prize subscribe today"
# Of a short text all n-grams are weighed, whose models take seconds to load; of a long one, few.
SENTENCES = {
    "en": "The old mill by the river has been standing there for more than three hundred years.",
    "de": "Die alte Mühle am Fluss steht dort schon seit mehr als dreihundert Jahren.",
    "fr": "Le vieux moulin au bord de la rivière se dresse là depuis plus de trois cents ans.",
    "ru": "Старая мельница у реки стоит там уже более трёхсот лет.",
    "ja": "川のほとりの古い水車小屋は三百年以上前からそこに立っています。",
}
LONG = [" ".join([sentence] * 5) for sentence in SENTENCES.values()]


def texts(*values):
    return pa.array(values, pa.large_string())


def shuffled(sentence, seed):
    words = sentence.split() * 4
    random.Random(seed).shuffle(words)
    return " ".join(words)


@pytest.fixture
def labelled(tmp_path):
    path = tmp_path / "labelled.jsonl"
    rows = [{"text": shuffled(GOOD, i), "label": 1} for i in range(20)]
    rows += [{"text": shuffled(BAD, i), "label": 0} for i in range(20)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_languages_are_told_apart():
    assert [code for code, _ in identify(LONG)] == list(SENTENCES)
    assert identify(["12 + 34 = 46"]) == [(None, 0.0)]
    assert len(known_languages()) == 75


def test_the_reason_names_the_language():
    reasons = learned.language(LanguageSettings(keep=("en", "de")))
    assert reasons(texts(*LONG)) == [
        None,
        None,
        "language:fr",
        "language:ru",
        "language:ja",
    ]
    sure = learned.language(
        LanguageSettings(keep=("en",), min_probability=0.999999, accuracy="low")
    )
    assert sure(texts("no")) != [None]


def test_an_unknown_language_is_refused_before_any_document(tmp_path):
    settings = FilterSettings(languages=LanguageSettings(keep=("en", "dee")))
    with pytest.raises(ValueError, match="unknown language 'dee'"):
        learned.prepare(settings, tmp_path)


def test_texts_unlike_the_reference_cost_too_many_bits(tmp_path):
    (tmp_path / "reference.txt").write_text(GOOD * 20)
    wanted = PerplexitySettings(reference=str(tmp_path / "reference.txt"), max_bits_per_byte=3)
    facts = learned.prepare(FilterSettings(perplexity=wanted), tmp_path)
    assert facts == {"perplexity": {"reference_bytes": len(GOOD) * 20}}
    (filter,) = learned.filters(FilterSettings(perplexity=wanted), tmp_path)
    assert filter(texts("the water turns the wheel", "xQ#9_zz@@ 77 ~ K")) == [None, "perplexity"]


def test_a_classifier_is_fitted_judged_and_applied(tmp_path, labelled):
    settings = FilterSettings(quality=QualitySettings(labelled=str(labelled), repeats=2))
    facts = learned.prepare(settings, tmp_path)["quality"]
    assert facts["accuracy"] == 1 and facts["majority"] == 0.5 and facts["rows"] == 40
    (filter,) = learned.filters(settings, tmp_path)
    assert filter(texts(shuffled(GOOD, 99), shuffled(BAD, 99))) == [None, "low_quality"]


def test_cross_validation_of_noise_is_chance():
    rng = random.Random(0)
    noise = texts(*(" ".join(rng.choice("abcdefgh") for _ in range(30)) for _ in range(80)))
    labels = np.arange(80) % 2
    found = cross_validate(Features.of(noise), labels, folds=5, repeats=2)
    assert found["low"] < 0.5 < found["high"] + 0.15


def test_a_classifier_is_deterministic_and_survives_a_file(tmp_path):
    some = Features.of(texts(*(shuffled(GOOD if i % 2 else BAD, i) for i in range(30))))
    labels = np.arange(30) % 2
    one, two = (Classifier.train(some, labels) for _ in range(2))
    one.save(tmp_path / "model.npz")
    again = Classifier.load(tmp_path / "model.npz")
    assert (one.probability(some) == two.probability(some)).all()
    assert (one.probability(some) == again.probability(some)).all()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"text": "a b", "label": "spam"}], "has labels spam; 'label' is 1 for good rows"),
        ([{"text": "a b", "label": 1}] * 30, "has 30 good rows and 0 others; it needs 10 of each"),
    ],
)
def test_labels_that_cannot_be_learned_from_are_refused(tmp_path, rows, message):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(BadInput, match=message):
        learned.prepare(FilterSettings(quality=QualitySettings(labelled=str(path))), tmp_path)


def test_words_of_a_list_are_found_whole_and_in_any_case(tmp_path):
    (tmp_path / "words").write_text("darn\nten bells\n畜生\n")
    reasons = learned.bad_words(BadWordSettings(lists=(str(tmp_path / "words"),)))
    kept = texts("darning socks", "ten  bells", "a bell")
    dropped = texts("Darn!", "he said: darn", "TEN BELLS rang", "この畜生め")
    assert reasons(kept) == [None] * 3
    assert reasons(dropped) == ["bad_words"] * 4
    lenient = learned.bad_words(BadWordSettings(lists=(str(tmp_path / "words"),), max_count=1))
    assert lenient(texts("darn", "darn and DARN")) == [None, "bad_words"]


def test_a_list_of_words_has_any_name_and_goes_by_its_content(tmp_path):
    def identity(name):
        (tmp_path / name).write_text("darn\n")
        settings = BadWordSettings(lists=(str(tmp_path / name),))
        return settings.identity(contents(settings))

    assert identity("en") == identity("words.txt")


def test_identity_is_the_content_of_files_not_their_place(tmp_path, labelled):
    def identity(path):
        settings = QualitySettings(labelled=str(path))
        return settings.identity(contents(settings))

    one = identity(labelled)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    (moved / labelled.name).write_bytes(labelled.read_bytes())
    assert identity(moved / labelled.name) == one
    labelled.write_text(labelled.read_text().replace("miller", "baker"))
    assert identity(labelled) != one
