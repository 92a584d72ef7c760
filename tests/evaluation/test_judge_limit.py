"""Which missing scores are the judge's fault, and how many of those a run bears."""

import pytest

from cluster.errors import BadInput
from cluster.manifest import Manifest
from tasks.evaluation.judging.settings import JudgeSettings
from tasks.evaluation.judging.stage import check_judged

SETTINGS = JudgeSettings(max_unscored=0.5)


def judged(scores: int, **unscored: int) -> Manifest:
    facts = {"scores": scores, "unscored": unscored}
    identity = {"stage": "judge", "version": 1, "recipe": "test", "fingerprint": ""}
    return Manifest(**identity, settings={}, inputs={}, facts=facts)


def test_answers_with_nothing_to_ask_about_are_no_fault_of_the_judge() -> None:
    check_judged(judged(4, nothing_to_ask=2, no_context=1), SETTINGS)


def test_a_judge_that_does_not_answer_is() -> None:
    with pytest.raises(BadInput, match=r"2 of 3 scores are missing.*timeout"):
        check_judged(judged(3, timeout=2), SETTINGS)
    check_judged(judged(4, timeout=2), SETTINGS)
