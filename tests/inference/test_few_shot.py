"""Prompts that show a task by examples."""

from pathlib import Path

import pytest

from cluster.errors import BadInput
from tasks.inference.few_shot import few_shot_prompt
from tasks.tuning.rows import read_shots


def test_examples_come_before_the_question_whose_answer_is_open():
    assert few_shot_prompt([("sea", "la mer"), ("sun", "le soleil")], "tree") == (
        "Input: sea\nOutput: la mer\n\nInput: sun\nOutput: le soleil\n\nInput: tree\nOutput:"
    )


def test_without_examples_the_prompt_is_the_question():
    assert few_shot_prompt([], "tree") == "tree"


def test_shots_are_read_in_the_order_of_the_file(tmp_path: Path):
    file = tmp_path / "shots.jsonl"
    file.write_text(
        '{"instruction": "z", "response": "1"}\n{"prompt": "a", "completion": "2"}\n'
        '{"question": "m", "input": "n", "answer": "3"}\n'
    )
    assert read_shots(file) == [("z", "1"), ("a", "2"), ("m\n\nn", "3")]


def test_a_shot_without_an_answer_is_named(tmp_path: Path):
    file = tmp_path / "shots.jsonl"
    file.write_text('{"instruction": "z", "response": "1"}\n{"instruction": "a"}\n')
    with pytest.raises(BadInput, match="line 2"):
        read_shots(file)
