from typing import Any

import pytest

from tasks.evaluation.judging.qag import pattern_questions, qag
from tasks.evaluation.judging.questions import Question, Unscored
from tasks.evaluation.judging.rows import Row

ROW = Row(
    "a", "?", prediction="Cats sleep. Dogs bark.", reference="Cats sleep. Birds sing. Fish swim."
)


def says(question: Question) -> str:
    """Yes if the text holds the quoted words."""
    material = dict(question.material)
    return "yes" if material["question"].split('"')[1] in material["text"] else "idk"


def test_coverage_and_alignment_are_shares_of_yes(scripted_judge: Any) -> None:
    (parts,) = qag(scripted_judge(says), [ROW])
    assert parts["coverage"].score == pytest.approx(1 / 3)
    assert parts["coverage"].distribution == pytest.approx({"yes": 1 / 3, "no": 0, "idk": 2 / 3})
    assert parts["alignment"].score == 0.5
    assert parts["min"].score == pytest.approx(1 / 3)
    assert parts["mean"].score == pytest.approx(5 / 12)
    assert [p.criterion for p in parts.values()] == ["coverage", "alignment", "min", "mean"]


def test_identical_texts_score_one(scripted_judge: Any) -> None:
    (parts,) = qag(scripted_judge(says), [Row("a", "?", "It adds. It ends.", "It adds. It ends.")])
    assert [p.score for p in parts.values()] == [1, 1, 1, 1]


def test_each_row_is_asked_its_own_questions(scripted_judge: Any) -> None:
    other = Row("b", "?", prediction="Snow falls.", reference="Snow falls.")
    first, second = qag(scripted_judge(says), [ROW, other])
    assert second["coverage"].score == 1.0
    assert first["coverage"].score == pytest.approx(1 / 3)


def test_a_missing_verdict_is_asked_again_and_only_that_one(scripted_judge: Any) -> None:
    lost: list[str] = []

    def forgets_once(question: Question) -> Any:
        text = dict(question.material)["question"]
        if "Birds" in text and text not in lost:
            lost.append(text)
            return Unscored("timeout")
        return says(question)

    judge = scripted_judge(forgets_once)
    (parts,) = qag(judge, [ROW])
    assert parts["coverage"].score == pytest.approx(1 / 3)
    assert len(judge.questions) == 3 + 1 + 2
    assert judge.questions[3].form.startswith("One word only.")


def test_a_verdict_that_never_comes_is_no_no(scripted_judge: Any) -> None:
    judge = scripted_judge(
        lambda q: Unscored("timeout") if "Birds" in dict(q.material)["question"] else says(q)
    )
    (parts,) = qag(judge, [ROW])
    assert (parts["coverage"].score, parts["coverage"].reason) == (None, "timeout")
    assert parts["alignment"].score == 0.5
    assert (parts["min"].score, parts["min"].reason) == (None, "timeout")


def test_a_row_with_nothing_to_ask_says_so(scripted_judge: Any) -> None:
    rows = [Row("a", "?", "Cats sleep."), Row("b", "?", "", reference="Cats sleep.")]
    bare, empty = qag(scripted_judge(says), rows)
    assert bare["coverage"].reason == bare["alignment"].reason == "no_context"
    assert (empty["coverage"].score, empty["alignment"].reason) == (0.0, "nothing_to_ask")


def test_a_judge_that_writes_makes_the_questions(scripted_judge: Any) -> None:
    prompts: list[str] = []

    def write(prompt: str) -> str:
        prompts.append(prompt)
        return '1. Is "Cats" there?\n2. Is "Birds" there?\nThat is all.'

    judge = scripted_judge(says, write=write)
    (parts,) = qag(judge, [ROW], questions=2)
    assert parts["coverage"].score == 0.5
    assert parts["alignment"].score == 1.0
    assert [ROW.reference in p or ROW.prediction in p for p in prompts] == [True, True]
    assert "Write 2 short questions" in prompts[0]


def test_pattern_questions_are_over_sentences_then_names() -> None:
    text = "Return the sum. Uses left_side."
    assert pattern_questions(text, 3) == [
        'Does the text say that "Return the sum"?',
        'Does the text say that "Uses left_side"?',
        'Does the text mention "left_side"?',
    ]
    assert pattern_questions("", 3) == []
    assert len(pattern_questions("One thing. Two things. Three things. Four things.", 3)) == 3
