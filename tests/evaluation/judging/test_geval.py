from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import BadInput
from tasks.evaluation.judging.assessment import Assessment
from tasks.evaluation.judging.criteria import CRITERIA
from tasks.evaluation.judging.geval import Form, geval, parse_scale, read_stored
from tasks.evaluation.judging.questions import Unscored, moments
from tasks.evaluation.judging.rows import Row

ROW = Row("a", "What is two and two?", "Four.", reference="4", context="Sums.")
CORRECTNESS = CRITERIA["correctness"]


def test_the_score_is_the_mean_of_the_distribution_and_the_spread_its_deviation(
    scripted_judge: Any,
) -> None:
    shares = {"1": 0.0, "2": 0.0, "3": 0.25, "4": 0.5, "5": 0.25}
    judge = scripted_judge(lambda question: shares)
    (score,) = geval(judge, CORRECTNESS, Form((1, 5), CORRECTNESS.steps), [ROW])
    assert (score.score, score.spread) == (4.0, pytest.approx(0.5**0.5))
    assert (score.id, score.metric, score.criterion) == ("a", "geval", "correctness")
    assert (score.mode, score.reason, score.distribution) == ("choice", None, shares)


def test_a_scale_of_zero_and_one_keeps_its_zeros(scripted_judge: Any) -> None:
    judge = scripted_judge(lambda question: "0")
    (score,) = geval(judge, CORRECTNESS, Form((0, 1)), [ROW])
    assert (score.score, score.distribution) == (0.0, {"0": 1.0, "1": 0.0})


def test_an_unscored_row_stays_in_its_place_with_its_reason(scripted_judge: Any) -> None:
    rows = [ROW, Row("b", "?", "bad"), Row("c", "?", "fine")]
    judge = scripted_judge(
        lambda q: Unscored("refusal") if ("answer", "bad") in q.material else "5"
    )
    scores = geval(judge, CRITERIA["relevance"], Form((1, 5)), rows)
    assert [(s.id, s.score, s.reason) for s in scores] == [
        ("a", 5.0, None),
        ("b", None, "refusal"),
        ("c", 5.0, None),
    ]


def test_consistency_needs_something_to_be_consistent_with(scripted_judge: Any) -> None:
    judge = scripted_judge(lambda question: "5")
    scores = geval(judge, CRITERIA["consistency"], Form((1, 5)), [Row("b", "?", "x"), ROW])
    assert [s.reason for s in scores] == ["no_context", None]
    assert len(judge.questions) == 1


def test_the_prompt_has_criterion_steps_scale_material_and_form(scripted_judge: Any) -> None:
    judge = scripted_judge(lambda question: "5")
    geval(judge, CORRECTNESS, Form((1, 5), ("Think.", "Rate.")), [ROW])
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
    geval(judge, fluency, Form((1, 5), fluency.steps), [ROW])
    assert judge.questions[-1].material == (("answer", "Four."),)


def test_stored_replies_are_rated_without_a_judge() -> None:
    rows = [
        Row("a", "?", "x", replies=("2", "Rating: 3", "2.5/3", "what?")),
        Row("b", "?", "x", replies=("no idea",)),
        Row("c", "?", "x"),
    ]
    first, second, third = read_stored(CORRECTNESS, Form((1, 3)), rows)
    assert (first.score, first.mode, first.mass) == (2.5, "samples", 0.5)
    assert first.ratings == (2.0, 3.0)
    assert first.distribution == {"1": 0.0, "2": 0.5, "3": 0.5}
    assert (second.score, second.reason, third.reason) == (None, "unparsable", "no_replies")
    published = read_stored(CORRECTNESS, Form((1, 3)), rows, "published")
    assert [score.score for score in published] == [7 / 4, 0.0, None]


def test_equal_means_are_equal_to_the_last_bit() -> None:
    replies = ("2",) * 10, ("1", "3") * 5, ("1",) * 3 + ("3",) * 3 + ("2",) * 4
    rows = [Row(str(i), "?", "x", replies=texts) for i, texts in enumerate(replies)]
    assert {score.score for score in read_stored(CORRECTNESS, Form((1, 3)), rows)} == {2.0}
    thirds = [("1", "2", "2"), ("2", "1", "2"), ("1", "1", "3")]
    rows = [Row(str(i), "?", "x", replies=texts) for i, texts in enumerate(thirds)]
    assert len({score.score for score in read_stored(CORRECTNESS, Form((1, 3)), rows)}) == 1


@given(st.lists(st.floats(0.01, 1), min_size=5, max_size=5))
def test_scores_stay_on_the_scale(weights: list[float]) -> None:
    shares = {str(i + 1): w / sum(weights) for i, w in enumerate(weights)}
    mean, spread = moments(shares)
    assert 1 <= mean <= 5
    assert 0 <= spread <= 2


def test_an_empty_answer_is_shown_as_one(scripted_judge: Any) -> None:
    judge = scripted_judge(lambda question: "1")
    geval(judge, CRITERIA["fluency"], Form((1, 5)), [Row("a", "?", "")])
    assert judge.questions[0].material == (("answer", ""),)


def test_scales() -> None:
    assert parse_scale("1-5") == (1, 5)
    assert parse_scale(" 0 - 1 ") == (0, 1)
    for wrong in ("5-1", "1", "a-b", "1-1", "0-1000"):
        with pytest.raises(BadInput, match="two whole numbers"):
            parse_scale(wrong)


def test_rows_of_one_document_are_drawn_together(scripted_judge: Any) -> None:
    def interval(document: str | None) -> list[float]:
        rows = [
            Row(f"{i}", "?", f"{1 + i // 10}", document=document and f"{document}{i // 10}")
            for i in range(40)
        ]
        judge = scripted_judge(lambda q: dict(q.material)["answer"].replace("I do not know.", "1"))
        found = Assessment()
        found.add(rows, partial(geval, judge, CRITERIA["fluency"], Form((1, 5))), None, None)
        found_interval = found.summary("geval_fluency")["interval"]
        assert isinstance(found_interval, list)
        return found_interval

    alone, together = interval(None), interval("text ")
    assert together[1] - together[0] > 2 * (alone[1] - alone[0])
