import itertools
import random
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.stage import build
from tasks.data.dedup import DedupSettings, dedup
from tasks.data.deduplication import exact as exact_dedup
from tasks.data.deduplication.exact import exact_duplicates, normalise
from tasks.data.deduplication.fuzzy import LshSettings, jaccard, near_duplicates, shingles
from tasks.data.text import read_table

WORDS = [f"word{i}" for i in range(500)]


def document(seed, length=200):
    rng = random.Random(seed)
    return " ".join(rng.choice(WORDS) for _ in range(length))


def edited(text, changes, seed=0):
    rng, words = random.Random(seed), text.split()
    for _ in range(changes):
        words[rng.randrange(len(words))] = f"new{rng.randrange(10**6)}"
    return " ".join(words)


def find(texts, **settings):
    return near_duplicates(lambda: iter(texts), LshSettings(**settings))


def kept(texts):
    return {texts[i] for i in find(texts).keepers}


def test_exact_duplicates_ignore_white_space_and_unicode_form():
    texts = ["a  b\n", "café", "a b", "x", unicodedata.normalize("NFD", "café"), "A b", "x"]
    assert exact_duplicates(lambda: texts) == [0, 1, 0, 3, 1, 5, 3]


def test_colliding_hashes_lose_nothing(monkeypatch):
    monkeypatch.setattr(exact_dedup, "digest", lambda text: bytes([len(text) % 2]))
    texts = [document(i, 5) for i in range(50)] * 2
    assert exact_duplicates(lambda: texts) == [*range(50), *range(50)]


@given(st.lists(st.text("ab \n", max_size=4), max_size=12))
def test_exact_keeps_the_first_of_each_class(texts):
    keepers = exact_duplicates(lambda: texts)
    for number, keeper in enumerate(keepers):
        equal = [i for i, t in enumerate(texts) if normalise(t) == normalise(texts[number])]
        assert keeper == equal[0]


def test_shingles_are_sets_of_five_words_without_case_and_punctuation():
    assert len(shingles("one two three four five six", 5)) == 2
    same = shingles("One, two; three -- FOUR five!", 5)
    assert np.array_equal(same, shingles("one two three four five", 5))
    assert len(shingles("a b a b a b a b a b", 5)) == 2
    assert len(shingles("two words", 5)) == 1
    assert len(shingles("... !!!", 5)) == 0
    assert len(shingles("机器学习是人工智能", 5)) == 5


@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)))
def test_jaccard_matches_sets(a, b):
    arrays = [np.array(sorted(s), np.uint64) for s in (a, b)]
    expected = len(a & b) / len(a | b) if a | b else 0.0
    assert jaccard(*arrays) == pytest.approx(expected)


def test_the_longest_stays_whatever_the_order():
    base = document(1)
    family = [base, base + " and a little more", edited(base, 1), document(2), document(3)]
    for order in itertools.permutations(family):
        assert kept(list(order)) == {family[1], family[3], family[4]}


def test_equally_long_ones_keep_the_same_one_in_any_order():
    base = document(1)
    family = [base + " " + tail for tail in ("aaa", "bbb", "ccc")]
    assert len({frozenset(kept(list(o))) for o in itertools.permutations(family)}) == 1


def test_pairs_below_the_threshold_stay():
    base = document(1)
    half = " ".join(base.split()[:100] + document(9).split()[:100])
    assert find([base, half]).keepers == [0, 1]


def test_found_pairs_are_those_of_brute_force():
    texts = [document(i) for i in range(60)]
    texts += [edited(texts[i], 1 + i % 12, seed=i) for i in range(60)]
    sets = [shingles(t, 5) for t in texts]
    alike = [
        (a, b) for a, b in itertools.combinations(range(120), 2) if jaccard(sets[a], sets[b]) >= 0.8
    ]
    found = find(texts)
    removed = [(k, i) for i, k in enumerate(found.keepers) if k != i]
    assert {frozenset(p) for p in removed} <= {frozenset(p) for p in alike}
    assert len(removed) >= 0.9 * len(alike) > 10


def test_a_giant_cluster_costs_linear_work():
    base = document(1)
    texts = [edited(base, 1, seed=i) for i in range(1000)]
    found = find(texts)
    assert found.clusters == 1
    assert found.largest >= 990
    assert found.pairs_checked < 5 * len(texts)
    shuffled = random.Random(2).sample(texts, len(texts))
    again = find(shuffled)
    assert [shuffled[a] for a, _, _ in again.examples] == [texts[a] for a, _, _ in found.examples]


def test_texts_without_words_are_never_near_duplicates():
    assert find(["", "...", "!!!", "a", "b"]).keepers == [0, 1, 2, 3, 4]
    assert find([]).keepers == []


def test_the_stage_balances(store, text_artifact):
    base, other = document(1), document(2)
    texts = [base, other, base.replace(" ", "  "), edited(base, 1), document(3)]
    out = build(dedup, store, text=text_artifact(texts), settings=DedupSettings())
    assert out.manifest.ledger.identity() == {
        "rows_in": 5,
        "rows_out": 3,
        "rejects": {"exact_duplicate": 1, "near_duplicate": 1},
    }
    near = out.manifest.facts["near"]
    assert (near["clusters"], near["pairs_linked"], near["pairs_skipped"]) == (1, 1, 0)
    pair = near["examples"][0]
    assert {pair["a"], pair["b"]} == {"texts.jsonl:1", "texts.jsonl:4"}
    assert 0.8 <= pair["jaccard"] < 1
    survivors = read_table(out)["id"].to_pylist()
    assert survivors[0] == "texts.jsonl:2" or survivors[0] == "texts.jsonl:1"
    assert survivors[-1] == "texts.jsonl:5"


@pytest.mark.parametrize(
    "exact,fuzzy,out", [(True, True, 2), (True, False, 3), (False, True, 2), (False, False, 4)]
)
def test_either_part_can_be_left_out(store, text_artifact, exact, fuzzy, out):
    base = document(1)
    artifact = text_artifact([base, base, edited(base, 1), document(2)])
    settings = DedupSettings(exact=exact, fuzzy=fuzzy)
    assert build(dedup, store, text=artifact, settings=settings).manifest.rows == out


def test_files_in_another_order_keep_the_same_texts(store, text_artifact):
    base = [document(i) for i in range(5)]
    texts = base + [edited(t, 1, seed=i) for i, t in enumerate(base)] + base[:2]
    shuffled = random.Random(1).sample(texts, len(texts))
    one, two = (
        build(dedup, store, text=text_artifact(t, n), settings=DedupSettings())
        for t, n in ((texts, "a.jsonl"), (shuffled, "b.jsonl"))
    )
    assert set(read_table(one)["text"].to_pylist()) == set(read_table(two)["text"].to_pylist())
    assert one.manifest.rows == 5
