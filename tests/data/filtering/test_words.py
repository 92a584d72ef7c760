import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.data.filtering import alphabet
from tasks.data.filtering.lexicon import lexicon
from tasks.data.filtering.words import WORD, split


def words_of(text):
    data = np.frombuffer(text.encode(), np.uint8)
    codes, kinds = np.empty(len(data), np.uint32), np.empty(len(data), np.uint16)
    found = np.empty(max(1, len(data)), WORD)
    n = alphabet.decode_text(data, 0, len(data), alphabet.table(), codes, kinds)
    count = split(codes, kinds, n, lexicon(), found)
    return [text[word["start"] : word["end"]] for word in found[:count]]


# What spaCy 3.8's blank English pipeline gives, written down once.
@pytest.mark.parametrize(
    "text,expected",
    [
        ("The mill turns.", "The|mill|turns|."),
        ('"Stop!" (he said).', '"|Stop|!|"|(|he|said|)|.'),
        ("I don't, we'll've; cannot", "I|do|n't|,|we|'ll|'ve|;|can|not"),
        ("dont gonna its It’s", "do|nt|gon|na|its|It|’s"),
        ("Mr. Hill of Calif. lives at 5 p.m.", "Mr.|Hill|of|Calif.|lives|at|5|p.m."),
        ("the U.S. and NASA. I. etc.", "the|U.S.|and|NASA|.|I.|etc|."),
        ("the miller's and the cows' bread", "the|miller|'s|and|the|cows|'|bread"),
        ("well-known 3-4 a--b x—y", "well|-|known|3|-|4|a|--|b|x|—|y"),
        ("10km 50% $5 US$7 8am.", "10|km|50|%|$|5|US$|7|8|am|."),
        ("wait...what… no....", "wait|...|what|…|no|...."),
        ("either/or and/or a:b end.Next", "either|/|or|and/or|a|:|b|end|.|Next"),
        ("https://mill.example.org/a-b?c=d, x", "https://mill.example.org/a-b?c=d|,|x"),
        ("me@mill-house.org example.com:80/x-y", "me@mill-house.org|example.com:80/x-y"),
        ("yes :-) no (see):", "yes|:-)|no|(|see|):"),
        ("**bold** #tag @you C++", "*|*|bold|*|*|#|tag|@you|C++"),
        ("1,000.5 +5 + x=y", "1,000.5|+5|+|x|=|y"),
        ("Größe ist überall, naïve.", "Größe|ist|überall|,|naïve|."),
        ("机器学习。 日本語、テスト", "机器学习|。|日本語、テスト"),
    ],
)
def test_words_are_those_of_spacy(text, expected):
    assert words_of(text) == expected.split("|")


@given(st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=60))
def test_nothing_but_white_space_lies_between_words(text):
    assert "".join(words_of(text)) == re.sub(r"\s+", "", text)


@given(st.text("ab.,-'(/:)\" \n1$…é#", max_size=40))
def test_signs_are_never_lost_or_doubled(text):
    assert "".join(words_of(text)) == re.sub(r"\s+", "", text)


def test_a_long_run_of_signs_is_linear():
    assert len(words_of(")" * 200_000)) == 200_000
    assert words_of("a" * 1_000_000 + "!") == ["a" * 1_000_000, "!"]
