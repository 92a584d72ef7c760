"""Native BPE training against `tokenizers` and against a naive trainer that recounts every pair."""

import json
from collections import Counter
from functools import cache
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, pre_tokenizers

from tasks.tokens.encoder import SPECIALS, byte_characters
from tasks.tokens.patterns import PATTERNS
from tasks.tokens.vocabulary.bpe import character_classes, count_words
from tasks.tokens.vocabulary.bpe_words import word_end
from tasks.tokens.vocabulary.settings import TokenizerSettings
from tasks.tokens.vocabulary.stage import _train, _train_natively

SPLIT = pre_tokenizers.Split(Regex(PATTERNS["cl100k"]), "isolated")
ODD = (
    "'sStTrRlLvVeEdDmM \n\r\t\u00a0\u3000\u2028\x85\x1c"
    "\u0300a\u00e9\u6f22\u017f1\u00b2\u0663!_\u2026\U0001f600"
)


def natively(texts: list[str], vocab_size: int) -> Tokenizer:
    arrays = [pa.array(texts, pa.large_string())]
    return _train_natively(arrays, TokenizerSettings(vocab_size=vocab_size), kernel=True)


def by_reference(texts: list[str], vocab_size: int) -> Tokenizer:
    arrays = [pa.array(texts, pa.large_string())]
    return _train(arrays, TokenizerSettings(vocab_size=vocab_size))


def merges_of(tokenizer: Tokenizer) -> list[list[str]]:
    found: list[list[str]] = json.loads(tokenizer.to_str())["model"]["merges"]
    return found


def naive_merges(texts: list[str], vocab_size: int) -> list[list[str]]:
    """All pairs of all words counted anew for each merge; of equals, the one with smallest ids."""
    letters = byte_characters()
    order = {token: k for k, token in enumerate(sorted(letters))}
    pieces = Counter(piece for text in texts for piece, _ in SPLIT.pre_tokenize_str(text))
    words = [([letters[byte] for byte in word.encode()], n) for word, n in pieces.items()]
    merges: list[list[str]] = []
    while len(order) < vocab_size - len(SPECIALS):
        counts: Counter[tuple[str, str]] = Counter()
        for symbols, n in words:
            for pair in pairwise(symbols):
                counts[pair] += n
        if not counts:
            break
        best = min(counts, key=lambda pair: (-counts[pair], order[pair[0]], order[pair[1]]))
        merges.append(list(best))
        order.setdefault("".join(best), len(order))
        words = [(applied(symbols, best), n) for symbols, n in words]
    return merges


def applied(symbols: list[str], pair: tuple[str, str]) -> list[str]:
    out: list[str] = []
    at = 0
    while at < len(symbols):
        found = tuple(symbols[at : at + 2]) == pair
        out.append("".join(pair) if found else symbols[at])
        at += 2 if found else 1
    return out


@cache
def classes() -> np.ndarray:
    return character_classes()


def words_of(text: str) -> list[str]:
    data, at, found = np.frombuffer(text.encode(), np.uint8), 0, []
    while at < len(data):
        end = word_end(data, at, len(data), classes())
        found.append(bytes(data[at:end]).decode())
        at = end
    return found


@settings(deadline=None, max_examples=200)
@given(text=st.one_of(st.text(ODD), st.text()))
def test_words_are_those_of_the_pattern(text: str) -> None:
    assert words_of(text) == [word for word, _ in SPLIT.pre_tokenize_str(text)]


def test_every_letter_is_in_the_class_of_the_library() -> None:
    points = [chr(c) for c in range(0x20000) if not 0xD800 <= c < 0xE000]
    for first in range(0, len(points), 256):
        text = "a1 ".join(points[first : first + 256])
        assert words_of(text) == [word for word, _ in SPLIT.pre_tokenize_str(text)]


def test_merges_are_those_of_both_references(documents: list[str]) -> None:
    texts = documents[:60]
    merges = merges_of(natively(texts, 700))
    assert len(merges) == 700 - 260
    assert merges == naive_merges(texts, 700)
    assert merges == merges_of(by_reference(texts, 700))


@settings(deadline=None, max_examples=50)
@given(texts=st.lists(st.text("ab "), min_size=1, max_size=20))
def test_ties_and_runs_are_resolved_as_by_the_reference(texts: list[str]) -> None:
    assert natively(texts, 290).to_str() == by_reference(texts, 290).to_str()


def test_ties_go_to_the_smallest_ids() -> None:
    texts = ["dc ba", "cd ab"]
    merges = merges_of(natively(texts, 400))
    assert merges[:3] == [["a", "b"], ["b", "a"], ["c", "d"]]
    assert merges == naive_merges(texts, 400)


def test_the_whole_file_is_that_of_the_library(documents: list[str]) -> None:
    assert natively(documents, 3000).to_str() == by_reference(documents, 3000).to_str()


@pytest.mark.parametrize("size", [1, 7, 8, 9, 5000])
def test_words_of_any_length_are_told_apart(size: int) -> None:
    texts = [c * size + " " + c * (size - 1) for c in "ab\u6f22"]
    assert natively(texts, 300).to_str() == by_reference(texts, 300).to_str()


def test_words_of_several_batches_are_counted_together(documents: list[str]) -> None:
    halves = [pa.array(documents[k::2], pa.large_string()) for k in (0, 1)]
    sliced = pa.array(["ab", *documents[::2]], pa.large_string())[1:]
    for batches in (halves, [sliced, halves[1]]):
        (data, offsets), counts = count_words(batches)
        words = [bytes(data[a:b]).decode() for a, b in pairwise(offsets)]
        pieces = (piece for text in documents for piece, _ in SPLIT.pre_tokenize_str(text))
        assert dict(zip(words, counts, strict=True)) == Counter(pieces)
