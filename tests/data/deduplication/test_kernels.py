import random
import re
import unicodedata
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.data.deduplication.lines import Lines
from tasks.data.deduplication.minhash import Family, band_keys, shingle_sets, signatures
from tasks.data.deduplication.normal import digests, normalise
from tasks.data.deduplication.spans import cut
from tasks.data.kernels.buffers import text_buffer
from tasks.data.kernels.characters import CODE_POINTS, is_unseen, kinds, lower_case
from tasks.data.kernels.folding import fold_text
from tasks.data.kernels.words import hash_words

WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+")
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)


def array(texts):
    return pa.array(texts, pa.large_string())


def words_of(text):
    data, offsets = text_buffer([text])
    out = np.empty(len(data) // 2 + 2, np.uint64)
    return out[: hash_words(data, 0, offsets[1], kinds(), lower_case(), out)].tolist()


def sets(texts):
    values, offsets = shingle_sets(array(texts))
    return [values[start:end].tolist() for start, end in pairwise(offsets)]


@given(TEXTS, TEXTS)
def test_words_are_those_of_the_regular_expression(one, two):
    found = [WORD.findall(text) for text in (one, two)]
    hashes = [words_of(text) for text in (one, two)]
    assert [len(h) for h in hashes] == [len(w) for w in found]
    lowered = [["".join(chr(lower_case()[ord(c)]) for c in word) for word in w] for w in found]
    assert (hashes[0] == hashes[1]) == (lowered[0] == lowered[1])


@pytest.mark.parametrize("text", ["", "...", "a", "a机b", "机机", "é_1 Ü"])
def test_words_at_the_edges(text):
    assert len(words_of(text)) == len(WORD.findall(text))


def test_words_fit_the_room_they_are_promised():
    for text in ("a " * 99, "a机" * 99, "机" * 99, "机a" * 99):
        assert len(words_of(text)) == len(WORD.findall(text)) <= len(text.encode()) // 2 + 2


@given(st.lists(TEXTS, max_size=6))
def test_normal_texts_are_composed_with_single_spaces(texts):
    expected = [" ".join(unicodedata.normalize("NFC", text).split()) for text in texts]
    assert normalise(array(texts)).to_pylist() == expected


def test_every_character_is_composed_as_python_does():
    texts = [f"a{chr(c)}\u0301x" for c in range(0x20, 0x30000) if not 0xD800 <= c < 0xE000]
    expected = [" ".join(unicodedata.normalize("NFC", text).split()) for text in texts]
    assert normalise(array(texts)).to_pylist() == expected


def test_a_slice_of_an_array_is_read_in_place():
    whole = array(["zero", " one  two ", "cafe\u0301", "three"])
    assert normalise(whole.slice(1, 2)).to_pylist() == ["one two", "café"]
    assert digests(whole.slice(1, 2)).tolist() == digests(whole)[1:3].tolist()
    assert sets(whole.slice(1, 2).to_pylist()) == sets(whole.to_pylist())[1:3]
    assert np.array_equal(
        signatures(whole.slice(1, 2), Family())[0], signatures(whole, Family())[0][1:3]
    )


def test_shingles_are_sets_of_five_words_without_case_and_punctuation():
    found = sets(
        [
            "one two three four five six",
            "One, two; three -- FOUR five!",
            "one two three four five",
            "a b a b a b a b a b",
            "two words",
            "... !!!",
            "机器学习是人工智能",
        ]
    )
    assert [len(s) for s in found] == [2, 1, 1, 2, 1, 0, 5]
    assert found[1] == found[2] and set(found[1]) < set(found[0])


def test_more_texts_than_are_sorted_at_once(monkeypatch):
    monkeypatch.setattr("tasks.data.deduplication.minhash.GROUP", 3)
    texts = [f"text {i} has a few words more than five" for i in range(10)]
    grouped = sets(texts)
    monkeypatch.undo()
    assert grouped == sets(texts)


def test_a_signature_is_the_least_of_each_permutation():
    texts = ["one two three four five six seven", "", "one two three four five six seven"]
    signed, counts = signatures(array(texts), Family(2, 3))
    assert signed.shape == (3, 6) and counts.tolist() == [3, 0, 3]
    assert (signed[1] == 0xFFFFFFFF).all() and (signed[0] == signed[2]).all()
    keys = band_keys(signed, Family(2, 3))
    assert keys.shape == (2, 3) and (keys[:, 0] == keys[:, 2]).all()
    assert len({*keys[:, 0].tolist(), *keys[:, 1].tolist()}) == 3


def test_a_document_longer_than_a_chunk_has_one_signature():
    words = [f"w{i}" for i in range(5000)]
    family = Family()
    whole = signatures(array([" ".join(words)]), family)[0][0]
    parts = [" ".join(words[k : k + 1004]) for k in range(0, 4996, 1000)]
    assert np.array_equal(whole, signatures(array(parts), family)[0].min(axis=0))


@pytest.mark.parametrize("shared", [20, 100, 180])
def test_signatures_agree_as_often_as_the_sets_do(shared):
    rng = random.Random(shared)
    errors = []
    for _ in range(200):
        words = [str(rng.random()) for _ in range(400)]
        left, right = words[:200], words[:shared] + words[200 : 400 - shared]
        one, two = sets([" ".join(left), " ".join(right)])
        true = len({*one} & {*two}) / len({*one} | {*two})
        signed, _ = signatures(array([" ".join(left), " ".join(right)]), Family())
        errors.append((signed[0] == signed[1]).mean() - true)
    expected = np.sqrt(true * (1 - true) / 112)  # of 112 independent draws
    assert abs(np.mean(errors)) < 4 * expected / np.sqrt(200)
    assert np.sqrt(np.mean(np.square(errors))) < 1.25 * expected


def test_lines_are_equal_up_to_white_space_and_counted_in_words():
    lines = Lines(3)(array(["one two  three\n x\n", "  one two three", "four\u00a0five six!\n"]), 7)
    assert lines.places.tolist() == [7, 8, 9]
    assert lines.texts.tolist() == [0, 1, 2]
    assert lines.low[0] == lines.low[1] != lines.low[2]
    assert lines.high[0] == lines.high[1] != lines.high[2]


def test_lines_are_cut_with_their_end():
    texts = array(["keep\none two three\nkeep too", "one two three", "x\n\nno no no\n"])
    lines = Lines(3)(texts, 0)
    drop = np.array([True, True, False])
    assert cut(texts, lines.where(drop)).to_pylist() == ["keep\nkeep too", "", "x\n\nno no no\n"]
    assert cut(texts.slice(1), Lines(3)(texts.slice(1), 1).where(drop[1:])).to_pylist() == [
        "",
        "x\n\nno no no\n",
    ]


def test_folding_takes_out_the_unseen_characters_and_no_others():
    every = [chr(code) for code in range(CODE_POINTS) if not 0xD800 <= code < 0xE000]
    seen = "".join(character for character in every if not is_unseen(character))
    assert fold_text("".join(every)) == unicodedata.normalize("NFKC", seen)
