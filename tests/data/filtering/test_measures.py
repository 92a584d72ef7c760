"""Measures against their definitions in plain Python."""

import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.data.filtering.measures import SCORERS, Measures
from tasks.data.filtering.rules import RULES
from tests.data.filtering.test_words import words_of

TEXTS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=120)
LINES = st.lists(st.sampled_from(["", " ", "a b.", "- c", "b...", "x" * 31]), max_size=12)


def measured(text, *names):
    measures = Measures(pa.array([text], pa.large_string()), names)
    values = [float(measures.column(name, np.ones(1, bool))[0]) for name in names]
    return values[0] if len(names) == 1 else values


def test_every_rule_has_a_measure_and_every_measure_takes_any_text():
    columns = {name for scorer in SCORERS for name in scorer.names}
    assert {rule.measure for rule in RULES.values()} == columns
    for text in ("", " ", "\n\n", "…", "é", "Three words here.\n", "\U0001f600", "\x85\u2028"):
        assert all(np.isfinite(measured(text, *columns)))


@given(TEXTS)
def test_characters(text):
    dense = [c for c in text if not c.isspace()]
    bad = [
        c for c in text if not (c.isprintable() or c in "\t\n\r\f" or (c > "\x7f" and c.isspace()))
    ]
    expected = {
        "length": len(text),
        "stripped_length": len(text.strip()),
        "alphanumeric_share": sum(c.isalnum() for c in dense) / max(1, len(dense)),
        "unprintable_share": (len(bad) + text.count("\ufffd")) / max(1, len(text)),
        "longest_line": max(map(len, text.split("\n"))),
        "mean_line": len(text) / (text.count("\n") + 1),
        "curly_brackets": text.count("{"),
    }
    assert measured(text, *expected) == pytest.approx(list(expected.values()))


def test_runs_and_phrases():
    assert measured(" ab cdef\n", "mean_run") == 3
    assert measured("ab " + "x" * 300 + " y", "longest_run") == 300
    assert measured("x" * 200, "longest_run") == 0  # a word
    assert measured("语" * 300, "longest_run") == 0  # written without spaces
    assert measured("Lorem Ipsum, lorem ipsum; loremipsum", "lorem_ipsum") == 2


def repeated(parts):
    """Parts that occurred before, and their characters."""
    again = [part for k, part in enumerate(parts) if part in parts[:k]]
    return len(again), sum(map(len, again))


@given(LINES)
def test_lines_and_paragraphs(lines):
    text = "\n".join(lines)
    if not text:
        return
    paragraphs = re.split(r"\n{2,}", text.strip())
    parts = re.split(r"\n+", text)
    every = text.splitlines()
    written = [line for line in text.split("\n") if line.strip()]
    count, written_count = max(1, len(every)), max(1, len(written))
    expected = {
        "repeated_paragraph_share": repeated(paragraphs)[0] / len(paragraphs),
        "repeated_paragraph_chars": repeated(paragraphs)[1] / len(text),
        "repeated_line_share": repeated(parts)[0] / len(parts),
        "repeated_line_chars": repeated(parts)[1] / len(text),
        "bullet_lines": sum(line.lstrip().startswith(("•", "-")) for line in every) / count,
        "ellipsis_lines": sum(line.rstrip().endswith(("...", "…")) for line in every) / count,
        "punctuated_lines": sum(line.endswith(".") for line in written) / written_count,
        "short_lines": sum(len(line) <= 30 for line in written) / written_count,
        "repeated_written_chars": repeated(written)[1] / max(1, len(text.replace("\n", ""))),
    }
    assert measured(text, *expected) == pytest.approx(list(expected.values()))


def test_words_by_hand():
    text = "The mill, # and the wheel... 7 turns\nwith it. It works!\n"
    words = words_of(text)
    assert words[-3:] == ["It", "works", "!"]
    names = ("words", "word_length", "hashes_per_word", "ellipses_per_word")
    proper = ["The", "mill", "and", "the", "wheel", "7", "turns", "with", "it", "It", "works"]
    n = len(words)
    assert measured(text, *names) == pytest.approx(
        [len(proper), np.mean([len(w) for w in proper]), 1 / n, 1 / n]
    )
    assert measured(text, "alphabetic_word_share") == pytest.approx(10 / n)
    assert measured(text, "stop_words") == 3  # and, the, with; not `The`
    assert measured(text, "sentences") == 3  # a line ends one too
    assert measured(text, "newlines_per_word") == pytest.approx(2 / n)


def test_sentences():
    assert measured("One. Two! Three?", "sentences") == 3
    assert measured('He said "One." Then two...', "sentences") == 2
    assert measured("Mr. Hill came. U.S. law", "sentences") == 2
    assert measured("one\ntwo\n\nthree", "sentences") == 3


def top(words, n):
    """Characters of the n-gram that occurs most, spaces included, the first of equals."""
    grams = [" ".join(words[k : k + n]) for k in range(len(words) - n + 1)]
    best = max(grams, key=grams.count, default="")
    return len(best) * grams.count(best)


def again(words, n):
    """Characters of n-grams seen before, from left to right without overlap."""
    seen, k, total = set(), 0, 0
    while k < len(words) - n + 1:
        gram = tuple(words[k : k + n])
        total += sum(map(len, gram)) if gram in seen else 0
        k += n if gram in seen else 1
        seen.add(gram)
    return total


@given(st.lists(st.sampled_from(["a", "bb", "ccc"]), min_size=1, max_size=60))
def test_repetition_matches_a_plain_loop(words):
    text = " ".join(words)
    expected = {f"top_{n}gram_share": top(words, n) for n in (2, 3, 4)}
    expected |= {f"repeated_{n}gram_share": again(words, n) for n in range(5, 11)}
    assert measured(text, *expected) == pytest.approx([v / len(text) for v in expected.values()])


def test_marks_of_code():
    assert measured("# This file is auto-generated.\nx = 1\n", "generated_marks") == 1
    assert measured("\n\na\nb\nc\nd\ne\n# do not edit", "generated_marks") == 0  # sixth line
    assert measured('<?xml version="1.0"?><a/>', "xml_header") == 1
    assert measured("x" * 100 + '<?xml version="1.0"?>', "xml_header") == 0
    assert measured("'" + "QUJD\n" * 500 + "'" + "-" * 498, "encoded_share") == pytest.approx(5 / 6)
    assert measured("QUJD" * 255, "encoded_share") == 0  # too short a run
    assert measured("\\x1f" * 256, "encoded_share") == 1
    assert measured("0x1f, " * 256, "encoded_share") == 1
    assert measured("\\x1f" * 255, "encoded_share") == 0
