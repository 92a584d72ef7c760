import numpy as np
import pyarrow as pa
import pytest

from tasks.data.filtering.line_removal import remove_lines
from tasks.data.filtering.rules import C4, LINE_RULES

LIMITS = {name: limit for name, limit in C4.items() if name in LINE_RULES}


def cleaned(text, **changes):
    limits = {k: v for k, v in (LIMITS | changes).items() if v is not None}
    texts, removed = remove_lines(
        pa.array([text], pa.large_string()), np.ones(1, bool), limits, strip=True
    )
    return texts[0].as_py(), {
        k: n for k, n in zip(LINE_RULES, removed[0].tolist(), strict=True) if n
    }


@pytest.mark.parametrize(
    "line,rule",
    [
        ("A word of " + "x" * 1001 + " letters.", "line_long_word"),
        ("This line has no end", "line_unpunctuated"),
        ("This line trails off...", "line_unpunctuated"),
        ("Two words.", "line_few_words"),
        ("Please enable JavaScript to go on.", "line_javascript"),
        ("Read our Privacy Policy for more.", "line_policy"),
        ("This site uses cookies for you.", "line_policy"),
    ],
)
def test_a_line_that_breaks_a_rule_goes(line, rule):
    text = f"The mill turns.\n{line}\r\n\n  The wheel turns too.  \n"
    assert cleaned(text) == ("The mill turns.\nThe wheel turns too.", {rule: 1})
    kept, _ = cleaned(text, **{rule: None})
    assert kept == f"The mill turns.\n{line}\nThe wheel turns too."


def test_marks_of_citations_are_cut_out():
    text = "The mill[1] turns[citation needed] fast.[23]\nThe [2x] wheel[edit] turns[] too.\n"
    assert cleaned(text) == (
        "The mill turns fast.\nThe [2x] wheel turns too.",
        {"line_citation": 5},
    )
    assert cleaned("The mill[1] turns.", line_citation=None) == ("The mill[1] turns.", {})


def test_white_space_and_line_ends_of_any_script():
    text = "\u3000Das Rad dreht sich.\u2028Es ist spät.\x85\tÜber dem Fluss!\u00a0"
    assert cleaned(text) == ("Das Rad dreht sich.\nEs ist spät.\nÜber dem Fluss!", {})
    assert cleaned("") == ("", {})


def test_dead_documents_become_empty_and_slices_are_understood():
    texts = pa.array(["x", "Here it is.\nno", "Here I am.", "y"], pa.large_string())
    out, removed = remove_lines(texts[1:3], np.array([True, False]), LIMITS, strip=True)
    assert out.to_pylist() == ["Here it is.", ""]
    assert removed.sum() == 1
