"""Where made text stands in a plan, and what a recipe may ask of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import BadInput
from cluster.store import Store
from flows.end_to_end import plan
from flows.plan.dag import Dag, Node
from flows.plan.mixing import mixture_of
from flows.plan.price import price
from flows.recipe import Recipe, validate

OWN = """
from headrace import Artifact, Draft, stage


@stage(version=1)
def mine(text: Artifact, draft: Draft) -> None:
    pass
"""


@pytest.fixture
def mill(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "mill.jsonl").write_text(json.dumps({"text": "The mill is old."}))
    (tmp_path / "mine.py").write_text(OWN)
    asked = {"model": "writer", "rephrase": {}, "instructions": {}}
    return {
        "name": "mill",
        "sources": [str(tmp_path / "mill.jsonl")],
        "synthesize": asked,
        "classify": None,
        "sweep": None,
    }


def nodes(recipe: Recipe, goal: str = "all") -> dict[str, Node]:
    return {node.name: node for node in plan(goal, Dag("mill", Store()), recipe)}


def test_made_text_goes_the_way_of_a_source(
    mill: dict[str, Any], fresh_home: Path, tmp_path: Path
) -> None:
    sets = {"benchmarks": [{"path": mill["sources"][0]}]}
    own = {"name": "mine", "function": f"{tmp_path}/mine.py:mine", "after": "redact"}
    beside = {**own, "name": "last", "after": None, "inputs": {"text": "redact"}}
    values = mill | {"decontaminate": sets, "stages": [own, beside]}
    found = nodes(validate(values, "mill"))
    assert found["synthesize"].upstream == {"text": found["mine"]}
    assert found["dedup/made"].upstream == {"text": found["synthesize"], "beside": found["dedup"]}
    assert found["redact/made"].upstream == {"text": found["decontaminate/made"]}
    assert found["mine/made"].upstream == {"text": found["redact/made"]}
    assert found["last"].upstream == {"text": found["redact"]}
    both = found["concatenate"]
    assert both.upstream == {"text": found["mine"], "made": found["mine/made"]}
    assert both.literals["sources"] == ("synthetic-rephrase",)
    assert found["tokenizer"].upstream["text"] is found["shards"].upstream["text"] is both
    assert found["instruct"].upstream["made"] is found["mine/made"]
    assert found["instruct"].literals["sources"] == ("synthetic-instructions",)


def test_instructions_alone_leave_the_text_as_it_is(mill: dict[str, Any], fresh_home: Path) -> None:
    mill["synthesize"] = {"model": "writer", "instructions": {}}
    found = nodes(validate(mill, "mill"))
    assert "concatenate" not in found
    assert found["shards"].upstream["text"] is found["redact"]
    assert "made" not in nodes(validate(mill, "mill"), "pretrain")["pretrain"].upstream


def test_its_weight_is_that_of_a_source(mill: dict[str, Any], fresh_home: Path) -> None:
    mill["synthesize"]["rephrase"] = {"weight": 0.25, "max_epochs": 2}
    recipe = validate(mill, "mill")
    mixture = mixture_of(Dag("mill", Store()), recipe)
    assert mixture is not None
    assert mixture.stages[0].weights == {"mill.jsonl": 1.0, "synthetic-rephrase": 0.25}
    assert mixture.max_epochs == {"synthetic-rephrase": 2}


def test_grades_come_before_the_filters_and_a_plan_counts_requests(
    mill: dict[str, Any], fresh_home: Path
) -> None:
    more = {"grade": {"model": "writer"}, "filters": {"quality": {}}}
    recipe = validate(mill | more, "mill")
    dag = plan("data", Dag("mill", Store()), recipe)
    found = {node.name: node for node in dag}
    assert found["grade"].upstream == {"raw": found["read"]}
    assert found["filter"].upstream["graded"] is found["grade"]
    tokens = {name: one.judge_tokens for name, one in price(dag, recipe.placement).stages.items()}
    assert tokens["grade"] > 0 and tokens["synthesize"] > 0 and not tokens["dedup/made"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"instruct": None}, "are for `instruct`, which this recipe does not do"),
        ({"filters": {"quality": {}}}, "filters.quality.labelled is missing"),
        ({"grade": {"model": "m"}}, "nothing learns from its grades"),
        ({"synthesize": None, "instruct": {"data": None}}, "nothing is made for it"),
        ({"synthesize": {"model": "m", "questions": {"pears": 1}}}, "did you mean 'pairs'"),
    ],
)
def test_what_does_not_fit_together_is_refused(
    mill: dict[str, Any], change: dict[str, Any], words: str
) -> None:
    with pytest.raises(BadInput, match=words):
        validate(mill | change, "mill")
