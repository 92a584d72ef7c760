"""Prometheus and pairwise comparisons."""

from typing import Any

import pytest

from tasks.evaluation.judging.criteria import CRITERIA
from tasks.evaluation.judging.pairwise import bradley_terry, comparison, pairwise
from tasks.evaluation.judging.prometheus import Rubric, absolute, read_result, relative
from tasks.evaluation.judging.questions import Unscored
from tasks.evaluation.judging.rows import Row

RUBRIC = Rubric("Is it right?")
ROW = Row("r", "2 + 2?", "four", reference="4", other="five", system="x", other_system="y")


@pytest.mark.parametrize(
    ("feedback", "allowed", "result"),
    [
        ("Score 5 would be ... [RESULT] 3", "12345", "3"),
        ("[RESULT] 5\nBecause it is right.", "12345", "5"),
        ("It is fine. So the overall score is 4.", "12345", "4"),
        ("It is fine.\n\nScore: 4", "12345", "4"),
        ("Both are short. [RESULT] A, then.", "AB", "A"),
        ("Both are short, but Response B is better.", "AB", "B"),
        ("[RESULT] 2, no: [RESULT] 3", "12345", "3"),
        ("[RESULT] 2, no: [RESULT] 3, I think.", "12345", None),
    ],
)
def test_the_result_is_read_where_it_is_one(
    feedback: str, allowed: str, result: str | None
) -> None:
    found = read_result(feedback, allowed)
    assert isinstance(found, Unscored) if result is None else found == result


def test_what_is_no_result_is_none() -> None:
    assert isinstance(read_result("[RESULT] 7", "12345"), Unscored)
    assert isinstance(read_result("[RESULT] A", "12345"), Unscored)


def test_a_reference_is_shown_where_there_is_one(scripted_judge: Any) -> None:
    prompts: list[str] = []
    judge = scripted_judge(lambda q: "1", write=lambda p: prompts.append(p) or "Good. [RESULT] 4")
    (score,) = absolute(judge, RUBRIC, [ROW])
    assert score.score == 4
    assert "###Reference Answer (Score 5):" in prompts[0] and "Score 5: " in prompts[0]
    absolute(judge, RUBRIC, [Row("r", "2 + 2?", "four")])
    assert "Reference" not in prompts[1]


def test_a_feedback_without_a_result_is_asked_for_again(scripted_judge: Any) -> None:
    replies = iter(["I cannot say.", "Fine. [RESULT] 2"])
    (score,) = absolute(scripted_judge(lambda q: "1", write=lambda p: next(replies)), RUBRIC, [ROW])
    assert score.score == 2
    (lost,) = absolute(scripted_judge(lambda q: "1", write=lambda p: "Hm."), RUBRIC, [ROW])
    assert (lost.score, lost.reason) == (None, "unparsable")


def test_a_judge_that_prefers_a_place_prefers_no_answer(scripted_judge: Any) -> None:
    (place,) = relative(scripted_judge(lambda q: "", write=lambda p: "[RESULT] A"), RUBRIC, [ROW])
    assert (place.score, place.parts) == (0.5, (1.0, 0.0))

    def honest(prompt: str) -> str:
        return "[RESULT] A" if prompt.index("four") < prompt.index("five") else "[RESULT] B"

    (right,) = relative(scripted_judge(lambda q: "", write=honest), RUBRIC, [ROW])
    assert (right.score, right.parts) == (1.0, (1.0, 1.0))


def test_pairs_are_asked_in_both_orders(scripted_judge: Any) -> None:
    rows = [ROW, Row("alone", "?", "four")]
    scores = pairwise(scripted_judge(lambda q: "a"), CRITERIA["correctness"], rows)
    assert [(s.score, s.reason) for s in scores] == [(0.5, None), (None, "no_other")]
    about = comparison(rows, scores)
    assert (about["flips"], about["first"]) == (1.0, 1.0)
    better = scripted_judge(lambda q: "a" if dict(q.material)["answer a"] == "four" else "b")
    scores = pairwise(better, CRITERIA["correctness"], rows)
    about = comparison(rows, scores)
    assert (scores[0].score, about["flips"], about["first"]) == (1.0, 0.0, 0.5)
    assert list(about["ranking"]) == ["x", "y"]


def test_strengths_are_the_log_odds_of_winning() -> None:
    games = [("x", "y", 1.0)] * 300 + [("x", "y", 0.0)] * 100
    strength = bradley_terry(games)
    assert strength["x"] - strength["y"] == pytest.approx(1.0986, abs=0.01)
    chain = bradley_terry([("a", "b", 1.0), ("b", "c", 1.0), ("a", "b", 1.0)])
    assert list(chain) == ["a", "b", "c"]
