"""Repeated passages, against an implementation that remembers every run of words."""

import random
import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.stage import build
from tasks.data.deduplication.passages import Marks, runs
from tasks.data.deduplication.settings import DedupSettings
from tasks.data.deduplication.spans import cut
from tasks.data.deduplication.stage import dedup
from tasks.data.text import read_table
from tests.data.deduplication.documents import document

WIDE = "\u3040-\u30ff\u3400-\u9fff"
WORD = re.compile(rf"[{WIDE}][^\s{WIDE}]*|[^\s{WIDE}]+")
TEXTS = st.lists(
    st.lists(st.sampled_from(["a", "b", "a,", "é", "机", "机a", " ", "\n", "  "]), max_size=30).map(
        "".join
    )
    | st.lists(st.sampled_from("ab"), max_size=40).map(" ".join),
    max_size=5,
)


def naive(texts, words):
    """Every text without the runs of so many words that are there before."""
    seen, left = set(), []
    for text in texts:
        found = list(WORD.finditer(text))
        bounds = [match.start() for match in found] + [len(text)]
        gone = set()
        for n in range(len(found) - words + 1):
            run = tuple(match.group() for match in found[n : n + words])
            if run in seen:
                gone |= set(range(bounds[n], bounds[n + words]))
            seen.add(run)
        left.append("".join(c for n, c in enumerate(text) if n not in gone))
    return left


def without_repeats(texts, words):
    """The same by marks and the runs round them."""
    array = pa.array(texts, pa.large_string())
    marks = Marks(words)(array, 0)
    spans = runs(array, 0, words, marks.where(again(marks)))
    return cut(array, spans.where(again(spans, later=True))).to_pylist()


def again(spans, later=False):
    """Which spans are in several places, or have an earlier one."""
    keys = list(zip(spans.low.tolist(), spans.high.tolist(), strict=True))
    places = {}
    for key, place in zip(keys, spans.places.tolist(), strict=True):
        places.setdefault(key, []).append(place)
    rows = zip(keys, spans.places.tolist(), strict=True)
    chosen = [len(places[k]) > 1 and (not later or p != min(places[k])) for k, p in rows]
    return pa.array(chosen, pa.bool_()).to_numpy(zero_copy_only=False)


@given(TEXTS, st.integers(4, 9))
def test_what_is_cut_is_what_is_there_before(texts, words):
    assert without_repeats(texts, words) == naive(texts, words)


def test_one_mark_stands_for_many_words_and_every_run_has_one():
    text = " ".join(str(n) for n in range(20_000))
    array = pa.array([text, text.replace(" ", "\n")], pa.large_string())
    marks = Marks(50)(array, 0)
    assert 0.06 < len(marks.low) / 40_000 < 0.09  # 2 of the 27 windows of a run and the next
    assert len(set(marks.low.tolist())) == len(marks.low) // 2
    assert len(runs(array, 0, 50, marks).low) == 2 * (20_000 - 49)


@pytest.fixture
def run(store):
    """Deduplicate, passages alone unless said otherwise."""

    def call(artifact, against=(), force=False, **settings):
        chosen = DedupSettings(**{"exact": False, "fuzzy": False, "passage_words": 20} | settings)
        earlier = {"against": against} if against else {}
        return build(dedup, store, text=artifact, settings=chosen, force=force, **earlier)

    return call


def texts_of(artifact):
    return read_table(artifact)["text"].to_pylist()


def corpus(count=120):
    """Documents that have passages of each other, of themselves, and over the ends of lines."""
    rng = random.Random(1)
    passages = [document(1000 + n, rng.randrange(15, 80)) for n in range(30)]
    texts = []
    for n in range(count):
        parts = [document(n, 40), *rng.choices(passages, k=2), document(n, 12), passages[n % 30]]
        texts.append(rng.choice(" \n").join(parts))
    return texts


def test_the_stage_cuts_what_is_there_before_and_accounts_for_it(run, text_artifact, monkeypatch):
    texts = corpus()
    left = naive(texts, 20)
    out = run(text_artifact(texts))
    assert texts_of(out) == left
    (facts,) = out.manifest.facts["cut"]
    assert facts["kind"] == "passages"
    assert facts["bytes"] == sum(map(len, texts)) - sum(map(len, left)) > 0
    assert facts["documents"] == sum(a != b for a, b in zip(texts, left, strict=True))
    assert facts["samples"][0]["text"][:200] in " ".join(texts[1].split("\n")) or facts["count"]
    monkeypatch.setattr("tasks.data.deduplication.spans.RANGE_BYTES", 1000)
    again = run(text_artifact(texts), force=True)
    assert again.manifest.files == out.manifest.files


def test_a_document_of_nothing_else_is_set_aside_whole(run, text_artifact):
    passage = document(1, 40)
    out = run(text_artifact([f"{document(2, 30)} {passage}", f"{passage}\n", "short"]))
    assert texts_of(out) == [f"{document(2, 30)} {passage}", "short"]
    assert out.manifest.ledger.identity() == {
        "rows_in": 3,
        "rows_out": 2,
        "rejects": {"repeated_passages": 1},
    }


def test_a_document_that_repeats_itself_keeps_the_first(run, text_artifact):
    passage = document(1, 30)
    text = f"{passage}\nthen {passage} and {passage}"
    assert texts_of(run(text_artifact([text]))) == [f"{passage}\nthen and "]
    assert texts_of(run(text_artifact(["ha " * 500]))) == ["ha "]  # runs that overlap


def test_shorter_passages_stay(run, text_artifact):
    passage = document(1, 19)
    texts = [f"{document(n, 30)} {passage}\n{document(50 + n, 9)}" for n in range(4)]
    out = run(text_artifact(texts))
    assert texts_of(out) == texts and out.manifest.facts["cut"][0]["count"] == 0


def test_passages_go_with_the_other_levels_and_an_earlier_artifact(run, text_artifact):
    notice = "All rights reserved by the author of this page"
    passage, own = document(1, 40), [document(n, 50) for n in range(10, 16)]
    both = {"exact": True, "fuzzy": True, "lines": True}
    first = run(text_artifact([f"{own[0]} {passage}\n{notice}"], "a.jsonl"), **both)
    texts = [f"{own[n]} {passage}\nso\n{notice}" for n in (1, 2, 3)]
    new = text_artifact([*texts, texts[0], f"{passage} {notice}"], "b.jsonl")
    second = run(new, [first], **both)
    # The run over the line "so" is new in the first of them alone.
    assert texts_of(second) == [f"{own[1]} so\n", f"{own[2]} ", f"{own[3]} "]
    assert second.manifest.ledger.rejects == {"exact_duplicate": 1, "repeated_passages": 1}
    assert [fact["kind"] for fact in second.manifest.facts["cut"]] == ["lines", "passages"]
