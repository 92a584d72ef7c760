from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import BadInput
from tasks.scoring.judging.criteria import CRITERIA, custom
from tasks.scoring.judging.geval import evaluation_steps, geval, parse_scale
from tasks.scoring.judging.rows import Row
from tasks.scoring.judging.verdicts import Unscored, moments

ROW = Row("a", "What is two and two?", "Four.", reference="4", context="Sums.")
CORRECTNESS = CRITERIA["correctness"]


def test_the_score_is_the_mean_of_the_distribution_and_the_spread_its_deviation(
    scripted_judge: Any,
) -> None:
    shares = {"1": 0.0, "2": 0.0, "3": 0.25, "4": 0.5, "5": 0.25}
    judge = scripted_judge(lambda question: shares)
    (score,) = geval(judge, [ROW], CORRECTNESS, (1, 5), CORRECTNESS.steps)
    assert (score.score, score.spread) == (4.0, pytest.approx(0.5**0.5))
    assert (score.id, score.metric, score.criterion) == ("a", "geval", "correctness")
    assert (score.mode, score.reason, score.distribution) == ("choice", None, shares)


def test_a_scale_of_zero_and_one_keeps_its_zeros(scripted_judge: Any) -> None:
    judge = scripted_judge(lambda question: "0")
    (score,) = geval(judge, [ROW], CORRECTNESS, (0, 1), ())
    assert (score.score, score.distribution) == (0.0, {"0": 1.0, "1": 0.0})


def test_an_unscored_row_stays_in_its_place_with_its_reason(scripted_judge: Any) -> None:
    rows = [ROW, Row("b", "?", "bad"), Row("c", "?", "fine")]
    judge = scripted_judge(
        lambda q: Unscored("refusal") if ("answer", "bad") in q.material else "5"
    )
    scores = geval(judge, rows, CRITERIA["relevance"], (1, 5), ())
    assert [(s.id, s.score, s.reason) for s in scores] == [
        ("a", 5.0, None),
        ("b", None, "refusal"),
        ("c", 5.0, None),
    ]


def test_consistency_needs_something_to_be_consistent_with(scripted_judge: Any) -> None:
    judge = scripted_judge(lambda question: "5")
    scores = geval(judge, [Row("b", "?", "x"), ROW], CRITERIA["consistency"], (1, 5), ())
    assert [s.reason for s in scores] == ["no_context", None]
    assert len(judge.questions) == 1


def test_the_prompt_has_criterion_steps_scale_material_and_form(scripted_judge: Any) -> None:
    judge = scripted_judge(lambda question: "5")
    geval(judge, [ROW], CORRECTNESS, (1, 5), ["Think.", "Rate."])
    prompt = judge.questions[0].text()
    order = [
        CORRECTNESS.definition,
        "1 (worst) to 5 (best)",
        "1. Think.",
        "2. Rate.",
        "two and two",
    ]
    places = [prompt.index(part) for part in [*order, "Four.", "Correctness:"]]
    assert prompt.endswith("Correctness:")
    assert places == sorted(places[:2]) + places[2:]
    fluency = CRITERIA["fluency"]
    geval(judge, [ROW], fluency, (1, 5), fluency.steps)
    assert judge.questions[-1].material == (("answer", "Four."),)


def test_steps_are_written_once_by_a_judge_that_can(scripted_judge: Any) -> None:
    writer = scripted_judge(lambda q: "1", write=lambda prompt: "Steps:\n1. Read.\n2) Rate.\n")
    assert evaluation_steps(writer, CORRECTNESS, (1, 5)) == (("Read.", "Rate."), "generated")
    babbler = scripted_judge(lambda q: "1", write=lambda prompt: "4")
    assert evaluation_steps(babbler, CORRECTNESS, (1, 5)) == (CORRECTNESS.steps, "shipped")
    chooser = scripted_judge(lambda q: "1")
    assert evaluation_steps(chooser, CORRECTNESS, (1, 5)) == (CORRECTNESS.steps, "shipped")
    assert evaluation_steps(chooser, custom("Is it polite?"), (1, 5)) == ((), "none")


@given(st.lists(st.floats(0.01, 1), min_size=5, max_size=5))
def test_scores_stay_on_the_scale(weights: list[float]) -> None:
    shares = {str(i + 1): w / sum(weights) for i, w in enumerate(weights)}
    mean, spread = moments(shares)
    assert 1 <= mean <= 5
    assert 0 <= spread <= 2


def test_an_empty_answer_is_shown_as_one(scripted_judge: Any) -> None:
    judge = scripted_judge(lambda question: "1")
    geval(judge, [Row("a", "?", "")], CRITERIA["fluency"], (1, 5), ())
    assert judge.questions[0].material == (("answer", ""),)


def test_scales() -> None:
    assert parse_scale("1-5") == (1, 5)
    assert parse_scale(" 0 - 1 ") == (0, 1)
    for wrong in ("5-1", "1", "a-b", "1-1", "0-1000"):
        with pytest.raises(BadInput, match="two whole numbers"):
            parse_scale(wrong)
