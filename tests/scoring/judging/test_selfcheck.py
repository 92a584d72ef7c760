import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest

from tasks.scoring.judging.rows import Row
from tasks.scoring.judging.selfcheck import ngram_scores, read_support, selfcheck, sentences
from tasks.scoring.judging.verdicts import Unscored

ROW = Row("r", "?", "Bo was born in Rome. He sang.", samples=("Bo was born in Rome.", "Bo sang."))


def test_sentence_scores_of_published_replies_are_exact(eval_data: Path) -> None:
    raw = (eval_data / "selfcheck_wikibio/first60.json.gz").read_bytes()
    checked = 0
    for passage in json.loads(gzip.decompress(raw)):
        for replies, stored in zip(
            passage["responses"]["prompt"], passage["scores"]["prompt"], strict=True
        ):
            assert sum(map(read_support, replies)) / len(replies) == stored
            checked += 1
    assert checked > 400


@pytest.mark.parametrize(
    ("reply", "value"),
    [("Yes.", 0), ("no", 1), ("**No**", 1), ("not sure", 0.5), ("None", 0.5), ("", 0.5)],
)
def test_only_a_whole_yes_or_no_counts(reply: str, value: float) -> None:
    assert read_support(reply) == value


def test_a_judge_is_asked_of_every_sentence_and_sample(scripted_judge: Any) -> None:
    judge = scripted_judge(lambda q: "yes" if "Rome" in q.material[0][1] else "no")
    (score,) = selfcheck(judge, [ROW], "prompt")
    assert (score.parts, score.score) == ((0.5, 0.5), 0.5)
    assert len(judge.questions) == 4


def test_a_reply_that_never_came_counts_nothing(scripted_judge: Any) -> None:
    judge = scripted_judge(lambda q: Unscored("timeout") if "Rome" in q.material[0][1] else "no")
    assert selfcheck(judge, [ROW], "prompt")[0].parts == (1.0, 1.0)
    (lost,) = selfcheck(scripted_judge(lambda q: Unscored("timeout")), [ROW], "prompt")
    assert (lost.score, lost.reason) == (None, "no_replies")


def test_contradiction_is_a_probability(scripted_judge: Any) -> None:
    judge = scripted_judge(lambda q: {"entailment": 0.75, "contradiction": 0.25})
    assert selfcheck(judge, [ROW], "nli")[0].score == pytest.approx(0.25)


def test_a_word_said_nowhere_else_is_the_least_likely() -> None:
    row = Row("r", "?", "a b. C d.", samples=("a b.", "a b."))
    first, second = ngram_scores(row, most=True)
    total = 3 * 4
    assert first == pytest.approx(-math.log(3 / total))
    assert second == pytest.approx(-math.log(1 / total))


def test_a_row_without_samples_says_so(scripted_judge: Any) -> None:
    (score,) = selfcheck(scripted_judge(lambda q: "no"), [Row("r", "?", "It is.")], "prompt")
    assert (score.score, score.reason) == (None, "no_samples")


def test_sentences_end_before_a_capital() -> None:
    assert sentences('He said 3.5 m. "No." Then left.\nNew line') == [
        "He said 3.5 m.",
        '"No.',
        "Then left.",
        "New line",
    ]
