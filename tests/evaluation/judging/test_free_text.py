"""Lists that a judge writes, as models set them out."""

import pytest

from tasks.evaluation.judging.free_text import items_in, questions_in, thoughts_end

ASKED = ["Does it rain?", "Is it (ever) dry?"]


@pytest.mark.parametrize(
    "text",
    [
        "1. Does it rain?\n2. Is it (ever) dry?",
        "1) Does it rain?\n2) Is it (ever) dry? (Yes)",
        "Here are the questions:\n\n- Does it rain?\n- Is it (ever) dry?\n\nI hope this helps!",
        "**Q1:** Does it rain?\n**Q2:** Is it (ever) dry?",
        "**Question 1:** Does it rain?\nAnswer: yes\n**Question 2:** Is it (ever) dry?\nAnswer: no",
        "Q1. Does it rain?\nA1. Yes.\nQ2. Is it (ever) dry?\nA2. Yes.",
        "1. **Does it rain?**\n2. **Is it (ever) dry?**",
        "Does it rain?\nIs it (ever) dry?",
        '["Does it rain?", "Is it (ever) dry?"]',
        '```json\n["Does it rain?", "Is it (ever) dry?"]\n```',
        '```json\n{"questions": ["Does it rain?", "Is it (ever) dry?"]}\n```',
        'Sure [as asked]:\n[{"question": "Does it rain?", "answer": "yes"}, '
        '{"question": "Is it (ever) dry?", "answer": "yes"}]',
        '{"Q1": "Does it rain?", "Q2": "Is it (ever) dry?"}',
        "<think>Perhaps:\n1. Is it so?</think>\n1. Does it rain?\n2. Is it (ever) dry?",
    ],
)
def test_questions_are_found_however_they_are_set_out(text: str) -> None:
    assert questions_in(text) == ASKED


@pytest.mark.parametrize("text", ["", "I cannot do that.", "[1, 2]", "{" * 5000, "<think>1. Why?"])
def test_what_asks_nothing_has_no_questions(text: str) -> None:
    assert questions_in(text) == []


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("1. Read it.\n2. Rate it.", ["Read it.", "Rate it."]),
        ("Steps:\n**Step 1:** Read it.\n**Step 2:** Rate it.", ["Read it.", "Rate it."]),
        ('{"steps": ["Read it.", "Rate it."]}', ["Read it.", "Rate it."]),
        ("Read it.\nWeigh it.\nRate it.", ["Read it.", "Weigh it.", "Rate it."]),
        ("I am sorry.\nThat cannot be.", []),
    ],
)
def test_steps_are_found_however_they_are_set_out(text: str, items: list[str]) -> None:
    assert items_in(text) == items


def test_thoughts_that_were_cut_off_are_all_there_is() -> None:
    assert thoughts_end("<think>It may be") == len("<think>It may be")
    assert thoughts_end("It is 4.") == 0
