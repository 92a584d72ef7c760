"""Evaluation steps, frozen as artifacts; criteria of one's own."""

from pathlib import Path
from typing import Any

import pytest

from cluster.errors import BadInput
from cluster.store import Store
from tasks.evaluation.judging.criteria import CRITERIA, named, read_criterion
from tasks.evaluation.judging.settings import JudgeSettings
from tasks.evaluation.judging.steps import evaluation_steps

RELEVANCE = CRITERIA["relevance"]


def test_steps_are_frozen_with_their_hash_until_the_criterion_changes(
    fresh_home: Path, scripted_judge: Any
) -> None:
    asked: list[str] = []
    judge = scripted_judge(
        lambda q: "1", write=lambda p: asked.append(p) or f"Steps:\n1. Read {len(asked)}.\n2) Rate."
    )
    first = evaluation_steps(judge, RELEVANCE, (1, 5), Store())
    assert (first.steps, first.source) == (("Read 1.", "Rate."), "generated")
    assert evaluation_steps(judge, RELEVANCE, (1, 5), Store()) == first
    assert len(asked) == 1
    (kept,) = [a for a in Store().artifacts() if a.name == first.artifact]
    assert kept.name.startswith("steps/relevance-")
    assert len(first.facts()["sha256"]) == 64
    for criterion, scale in ((RELEVANCE, (1, 3)), (named("Is it polite?"), (1, 5))):
        other = evaluation_steps(judge, criterion, scale, Store())
        assert other.artifact != first.artifact and other.steps != first.steps


def test_a_judge_that_writes_no_steps_rates_by_the_shipped_ones(
    fresh_home: Path, scripted_judge: Any
) -> None:
    babbler, chooser = scripted_judge(lambda q: "1", write=lambda p: "4"), scripted_judge(None)
    for judge in (babbler, chooser):
        found = evaluation_steps(judge, RELEVANCE, (1, 5), Store())
        assert (found.steps, found.source, found.artifact) == (RELEVANCE.steps, "shipped", None)
        assert evaluation_steps(judge, named("Is it polite?"), (1, 5), Store()).source == "none"


def test_a_criterion_in_words_gets_a_name_of_its_own() -> None:
    polite = named("Is it polite, and not too long for a text message?")
    assert (polite.name, polite.scale) == ("is_it_polite_and_not_too", None)
    assert named("groundedness").definition == "groundedness"
    assert named("2 facts?").name == "own_2_facts"
    with pytest.raises(BadInput, match="did you mean 'fluency'"):
        named("fluencyy")


def test_a_criterion_in_a_file_brings_its_range_and_material(tmp_path: Path) -> None:
    path = tmp_path / "groundedness.yaml"
    path.write_text(
        "name: groundedness\ndefinition: Whether it uses the fact.\nscale: [0, 1]\n"
        "material: [context, answer]\nneeds: [context]\n"
    )
    found = read_criterion(str(path))
    assert (found.scale, found.needs) == ((0, 1), ("context",))
    for bad, words in (
        ("name: x\n", "definition"),
        ("name: x\ndefinition: y\nscale: [1, 1]\n", "lowest rating first"),
        ("name: x\ndefinition: y\nmaterial: [title]\n", "title"),
        ("- 1\n", "cannot be read"),
    ):
        path.write_text(bad)
        with pytest.raises(BadInput, match=words):
            read_criterion(str(path))


def test_a_recipe_takes_unseen_criteria_with_ranges_of_their_own() -> None:
    own = {"name": "groundedness", "definition": "Whether it uses the fact.", "scale": [0, 1]}
    settings = JudgeSettings(criteria=("fluency", "Is it polite?", own))  # type: ignore[arg-type]
    names = [criterion.name for criterion in settings.chosen()]
    assert names == ["fluency", "is_it_polite", "groundedness"]
    assert settings.chosen()[2].scale == (0, 1)
    with pytest.raises(ValueError, match="each its own"):
        JudgeSettings(criteria=("fluency", {**own, "name": "fluency"}))  # type: ignore[arg-type]
