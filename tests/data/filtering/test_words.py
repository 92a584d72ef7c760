import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.data.filtering import alphabet
from tasks.data.filtering.words import WORD, split


def words_of(text):
    data = np.frombuffer(text.encode(), np.uint8)
    codes, kinds = np.empty(len(data), np.uint32), np.empty(len(data), np.uint16)
    found = np.empty(max(1, len(data)), WORD)
    n = alphabet.decode_text(data, 0, len(data), alphabet.table(), codes, kinds)
    count = split(codes, kinds, n, found)
    return [text[word["start"] : word["end"]] for word in found[:count]]


@pytest.mark.parametrize(
    "text,expected",
    [
        ("The mill turns.", "The|mill|turns|."),
        ('"Stop!" (he said).', '"|Stop|!|"|(|he|said|)|.'),
        ("the miller's, it’s isn't O'Hara", "the|miller|'s|,|it|’s|isn|'t|O'Hara"),
        ("Mr. Hill of the U.S. and NASA. etc.", "Mr.|Hill|of|the|U.S.|and|NASA|.|etc|."),
        ("well-known 3-4 a--b x—y", "well|-|known|3|-|4|a|--|b|x|—|y"),
        ("wait...what… no....", "wait|...|what|…|no|...."),
        ("either/or a:b end.Next a,b", "either|/|or|a|:|b|end|.|Next|a|,|b"),
        ("$5 50% 1,000.5 8:15 12/05", "$|5|50|%|1,000.5|8:15|12/05"),
        ("https://mill.example.org/a-b?c=d, x", "https://mill.example.org/a-b?c=d|,|x"),
        ("**bold** #tag @you AT&T", "*|*|bold|*|*|#|tag|@you|AT&T"),
        ("Größe ist überall, naïve.", "Größe|ist|überall|,|naïve|."),
        ("नमस्ते दुनिया।", "नमस्ते|दुनिया|।"),
        ("机器学习。 日本語、テスト", "机器学习|。|日本語、テスト"),
    ],
)
def test_words_and_signs(text, expected):
    assert words_of(text) == expected.split("|")


@given(st.text("ab.,-'(/:)\" \n1$…é#", max_size=40) | st.text(max_size=60))
def test_nothing_but_white_space_lies_between_words(text):
    text = re.sub("[\ud800-\udfff]", "", text)
    assert "".join(words_of(text)) == re.sub(r"\s+", "", text)


def test_a_long_run_of_signs_is_linear():
    assert len(words_of(")" * 200_000)) == 200_000
    assert words_of("a" * 1_000_000 + "!") == ["a" * 1_000_000, "!"]
