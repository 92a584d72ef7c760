"""Which missing scores are the judge's fault, and how many of those a run bears."""

import pytest

from cluster.errors import BadInput
from tasks.scoring.judge import _check
from tasks.scoring.judging.rows import Score


def scores(*reasons: str | None) -> list[Score]:
    return [
        Score(str(i), "qag", "coverage", score=None if reason else 1.0, reason=reason)
        for i, reason in enumerate(reasons)
    ]


def test_answers_with_nothing_to_ask_about_are_no_fault_of_the_judge() -> None:
    _check(scores("nothing_to_ask", "no_context", "nothing_to_ask", None), allowed=0.5)


def test_a_judge_that_does_not_answer_is() -> None:
    with pytest.raises(BadInput, match=r"2 of 3 scores are missing .*timeout"):
        _check(scores("timeout", "timeout", None), allowed=0.5)
