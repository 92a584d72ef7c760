import gzip
import json
from pathlib import Path

import pytest

from tasks.evaluation.overlap.scores import Column, columns
from tasks.evaluation.statistics.significance import best_systems, paired_tests

REFERENCES = [[f"the cat number {i} sat on the red mat"] for i in range(30)]
GOOD = [row[0] for row in REFERENCES]
BAD = [f"a dog of {i} runs over blue grass" for i in range(30)]


def scored(texts: list[str], *metrics: str) -> dict[str, Column]:
    return columns(texts, REFERENCES, metrics)


def test_a_clear_difference_is_no_chance() -> None:
    found = paired_tests(scored(GOOD, "rouge1", "chrf"), scored(BAD, "rouge1", "chrf"))
    assert found["rouge1"]["difference"] == pytest.approx(1 - 1 / 8, abs=0.05)
    assert found["rouge1"]["p"] < 0.01 and found["chrf"]["p"] < 0.01
    low, high = found["chrf"]["interval"]
    assert 0 < low <= found["chrf"]["difference"] <= high


def test_a_system_does_not_differ_from_itself() -> None:
    same = scored(GOOD, "rouge1", "bleu")
    for test in paired_tests(same, same).values():
        assert (test["difference"], test["p"]) == (0.0, 1.0)


def test_published_systems_differ_in_bleu(eval_data: Path) -> None:
    path = eval_data / "bleu/wmt17_ende_8systems.json.gz"
    data = json.loads(gzip.decompress(path.read_bytes()))
    systems = dict(data["systems"])
    first = systems["newstest2017.FBK.4870.en-de"][:300]
    second = systems["newstest2017.online-A.0.en-de"][:300]
    references = [[text] for text in data["references"][0][:300]]
    one, other = (columns(texts, references, ["bleu"]) for texts in (first, second))
    test = paired_tests(one, other)["bleu"]
    assert test["difference"] > 0 and test["p"] < 0.05


def test_the_best_is_named_only_where_it_is_better_than_the_next() -> None:
    nearly = [*GOOD[:-1], BAD[0]]
    systems = {name: scored(t, "rouge1", "ter") for name, t in (("bad", BAD), ("good", GOOD))}
    found = best_systems(systems)
    assert {test["best"] for test in found.values()} == {"good"}
    assert found["ter"]["difference"] < 0 < found["rouge1"]["difference"]
    for test in best_systems(systems | {"nearly": scored(nearly, "rouge1", "ter")}).values():
        assert (test["best"], test["first"], test["next"]) == (None, "good", "nearly")
