import gzip
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.evaluation.judging.criteria import CRITERIA
from tasks.evaluation.judging.geval import Form, read_stored
from tasks.evaluation.judging.questions import Unscored
from tasks.evaluation.judging.replies import Reply, read_choice, read_probabilities, read_published
from tasks.evaluation.judging.rows import Row
from tasks.evaluation.statistics.agreement import agree
from tasks.evaluation.statistics.intervals import correlation

SCALE = ("1", "2", "3", "4", "5")


@pytest.mark.parametrize(
    ("content", "answer"),
    [
        ("4", "4"),
        (" 4\n", "4"),
        ("4.", "4"),
        ("4.0", "4"),
        ("**4**", "4"),
        ("Score: 4", "4"),
        ("- Coherence: 4", "4"),
        ("4\n\nBecause the answer is to the point.", "4"),
        ('{"score": 4}', "4"),
        ('```json\n{"reason": "5 facts of 5", "score": 4}\n```', "4"),
        ('My verdict is {"score": "4"}', "4"),
        ("4/5", "4"),
        ("4 out of 5", "4"),
        ("4. Mostly right.", "4"),
        ("Analysis: 2 of 3 facts are there.\n\nRating: 4", "4"),
        ("Rating:\n4\n\nRationale: well said", "4"),
        ("It says 'I can't believe it'.\nRating: 4", "4"),
        ("All of it is there.\nRating: 4/5", "4"),
        ('Sure!\n{"score": 4, "reason": "matches \\d+"}\nHope it helps.', "4"),
        ("It covers all of the main points. Final score: 5.", "5"),
        ("The answer is short. Score: 4/5.", "4"),
        ("Its wording is plain, so it gets 3 out of 5 because two facts are missing.", "3"),
        ("On a scale of 1 to 5, I rate this answer a 4 for its brevity.", "4"),
        ("Accuracy gets a score of 2. Style gets a score of 4. Overall rating: 3", "3"),
        ("<think>Is it 2? A score of 3, rather.</think>\n4", "4"),
        ("<think>\nScore: 2\n</think>\n\nThe rating is 4.", "4"),
        ('4\n\nThe text holds {"score": 5}, which I leave out.', "4"),
    ],
)
def test_an_allowed_answer_is_read(content: str, answer: str) -> None:
    assert read_choice(Reply(content), SCALE) == answer


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "no_answer"),
        ("8/10", "fraction"),
        ("4 out of 10", "fraction"),
        ("11", "out_of_range"),
        ("-1", "out_of_range"),
        ("5.5", "out_of_range"),
        ("4 or 5", "unparsable"),
        ("4.5", "between_steps"),
        ("Rating: 2.5", "between_steps"),
        ("A score of 4 or 5 is due.", "ambiguous"),
        ("It has a score of 2 for style and a rating of 4 for facts.", "ambiguous"),
        ("It finds 2 out of 5 facts.", "unparsable"),
        ("The rating is lower than 3.", "unparsable"),
        ("<think>Is it 2? A score of 3", "thoughts_only"),
        ("NaN", "not_a_number"),
        ('{"score": NaN}', "not_a_number"),
        ('{"score": null}', "not_a_number"),
        ('{"score": 9}', "out_of_range"),
        ('{"score": true}', "unparsable"),
        ('{"score": 4', "unparsable"),
        ('{"score": 4} {"score": 5}', "ambiguous"),
        ('{"rating": 4}', "unparsable"),
        ('"score": 4', "unparsable"),
        ('{"score":' * 100_000, "unparsable"),
        ("Response 1: 2\nResponse 2: 1", "ambiguous"),
        ("I'm sorry, I can't rate this.", "refusal"),
        ("Das ist gut.", "unparsable"),
        ("The answer is neither 4 nor 5", "unparsable"),
    ],
)
def test_everything_else_is_unscored_with_its_reason(content: str, reason: str) -> None:
    read = read_choice(Reply(content), SCALE)
    assert isinstance(read, Unscored)
    assert read.reason == reason


def test_a_reply_that_was_cut_off_says_so() -> None:
    read = read_choice(Reply("Let me think about", finish_reason="length"), SCALE)
    assert isinstance(read, Unscored)
    assert read.reason == "truncated"


def test_probabilities_are_of_allowed_answers_in_any_spelling() -> None:
    tokens = (("4", (("4", math.log(0.5)), (" 4", math.log(0.1)), ("5", math.log(0.2)),
                     ("9", math.log(0.1)), ("Well", math.log(0.1)))),)  # fmt: skip
    found = read_probabilities(Reply("4", tokens=tokens), SCALE)
    assert found is not None
    probabilities, mass = found
    assert mass == pytest.approx(0.8)
    assert probabilities["4"] == pytest.approx(0.75)
    assert probabilities["5"] == pytest.approx(0.25)
    assert probabilities["1"] == 0


def test_the_rated_field_counts_not_a_number_in_the_explanation() -> None:
    sure = math.log(1.0)
    tokens = (
        ('{"reason": "', (('{"reason": "', sure),)),
        ("5", (("5", sure),)),
        (' facts", "score": ', ((' facts", "score": ', sure),)),
        ("2", (("2", math.log(0.6)), ("3", math.log(0.4)))),
        ("}", (("}", sure),)),
    )
    reply = Reply("".join(text for text, _ in tokens), tokens=tokens)
    found = read_probabilities(reply, SCALE)
    assert found is not None
    assert found[0] == pytest.approx({"1": 0, "2": 0.6, "3": 0.4, "4": 0, "5": 0})


def test_an_answer_of_two_tokens_is_followed_to_its_end() -> None:
    ten = tuple(str(n) for n in range(11))
    tokens = (
        ("1", (("1", math.log(0.7)), ("9", math.log(0.3)))),
        ("0", (("0", math.log(0.6)), ("", math.log(0.1)), ("\n", math.log(0.3)))),
    )
    found = read_probabilities(Reply("10", tokens=tokens), ten)
    assert found is not None
    probabilities, mass = found
    assert mass == pytest.approx(1.0)
    assert probabilities["10"] == pytest.approx(0.42)
    assert probabilities["1"] == pytest.approx(0.28)
    assert probabilities["9"] == pytest.approx(0.3)


def test_the_start_of_a_word_counts_for_the_only_answer_it_begins() -> None:
    tokens = (("yes", (("yes", math.log(0.5)), ("id", math.log(0.25)), ("No", math.log(0.25)))),)
    found = read_probabilities(Reply("yes", tokens=tokens), ("yes", "no", "idk"))
    assert found is not None
    assert found[0] == pytest.approx({"yes": 0.5, "no": 0.25, "idk": 0.25})


def test_a_log_probability_above_zero_is_certainty() -> None:
    tokens = (("4", (("4", 1000.0), ("5", -math.inf))),)
    found = read_probabilities(Reply("4", tokens=tokens), SCALE)
    assert found is not None
    assert found[0] == pytest.approx({"1": 0, "2": 0, "3": 0, "4": 1, "5": 0})


def test_without_log_probabilities_there_is_no_distribution() -> None:
    assert read_probabilities(Reply("4"), SCALE) is None


def stored(folder: Path, variant: str, aspect: str) -> tuple[list[Row], list[float], list[str]]:
    """The rows of a variant with their judge's replies, people's ratings, and the dialogues."""
    items = json.loads(gzip.decompress((folder / "topical_chat_360.json.gz").read_bytes()))
    path = folder / "chatgpt_0613_n20_naturalness_coherence.jsonl.gz"
    found = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    found = [r for r in found if (r["prompt_variant"], r["attribute"]) == (variant, aspect)]
    rows = [Row(str(r["idx"]), "?", "x", replies=tuple(r["responses"])) for r in found]
    of = [items[r["idx"]] for r in found]
    return rows, [item["scores"][aspect] for item in of], [item["source"] for item in of]


@pytest.mark.parametrize(
    ("variant", "aspect", "pearson", "kendall"),
    [
        ("geval", "naturalness", 0.393, 0.358),
        ("geval", "coherence", 0.468, 0.391),
        ("geval_no_auto_cot", "naturalness", 0.408, 0.331),
        ("geval_no_auto_cot", "coherence", 0.443, 0.408),
        ("rate_explain_auto_cot", "naturalness", 0.554, 0.478),
        ("rate_explain_auto_cot", "coherence", 0.512, 0.429),
    ],
)
def test_published_replies_give_the_published_agreement(
    eval_data: Path, variant: str, aspect: str, pearson: float, kendall: float
) -> None:
    """360 responses, 20 stored replies each: the mean of 20 against people. With unreadable replies
    left out, not counted 0, the figures move a little.
    """
    rows, humans, dialogues = stored(eval_data / "topical_chat", variant, aspect)
    tables = []
    for reading in ("published", "allowed"):
        scored = read_stored(CRITERIA[aspect], Form((1, 3)), rows, reading)
        assert all(score.score is not None for score in scored)
        values = [score.score or 0.0 for score in scored]
        tables.append(agree(values, humans, dialogues, resamples=2))
    assert tables[0]["pearson"] == pytest.approx(pearson, abs=0.001)
    assert tables[0]["by_group"]["kendall"] == pytest.approx(kendall, abs=0.001)
    assert tables[1]["pearson"] == pytest.approx(pearson, abs=0.002)
    assert tables[1]["by_group"]["kendall"] == pytest.approx(kendall, abs=0.006)


@pytest.mark.parametrize(
    ("aspect", "one", "mean", "mode"),
    [("naturalness", 0.215, 0.412, 0.251), ("coherence", 0.320, 0.466, 0.323)],
)
def test_the_mean_of_many_replies_agrees_better_than_one_or_their_mode(
    eval_data: Path, aspect: str, one: float, mean: float, mode: float
) -> None:
    """Spearman over all items. One reply: the mean over the first five, each taken alone."""
    rows, humans, _ = stored(eval_data / "topical_chat", "geval", aspect)
    scored = read_stored(CRITERIA[aspect], Form((1, 3)), rows, "published")
    ratings = np.array([score.ratings for score in scored])
    likeliest = [Counter(given.tolist()).most_common(1)[0][0] for given in ratings]

    def agreement(values: Any) -> float:
        return correlation("spearman", np.array([values, humans]).T)

    alone = [agreement(ratings[:, number]) for number in range(5)]
    assert sum(alone) / 5 == pytest.approx(one, abs=0.001)
    assert agreement([score.score for score in scored]) == pytest.approx(mean, abs=0.001)
    assert agreement(likeliest) == pytest.approx(mode, abs=0.001)


@pytest.mark.parametrize(
    ("text", "rating"),
    [("Rating: 2.5", 2), ("10", 10), ("3 faults.\nScore: 5", 5), ("8/10", 8), ("Well.", 0),
     ("Score (1-3): 3", 3), ("Rating: 1 of 3. Final rating: 2", 2)],
)  # fmt: skip
def test_the_published_reading_with_its_faults(text: str, rating: float) -> None:
    assert read_published(text) == rating
