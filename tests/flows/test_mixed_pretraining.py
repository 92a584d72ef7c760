"""A recipe with a mixture and a packing: planned, trained, stopped, gone on with, looked into."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cluster.artifact import Artifact
from cluster.placement import Placement
from cluster.stage import build
from cluster.store import Draft, Store
from flows.end_to_end import plan
from flows.plan.dag import Dag, Node
from flows.plan.mixing import planned_sources
from flows.recipe import Recipe
from flows.views.tokens import samples_seen
from tasks.report.page import view
from tasks.tokens.batches import NO_LOSS
from tasks.tokens.loader import Loader
from tasks.training.pretraining import arrangement_of

STEPS, CONTEXT, BATCH = 40, 64, 4
Made = tuple[Recipe, Store, dict[str, Artifact]]


def recipe_of(folder: Path) -> Recipe:
    """Two sources of which the second takes over half-way, and may be seen once."""
    said = "the miller said that wheel {i} of the mill runs {n} times while the water is high, and"
    texts = {
        "words": [said.format(i=i, n=i * i) * (1 + i % 4) + " stops." for i in range(200)],
        "sums": [" and ".join(f"{k} plus {i} is {i + k}" for k in range(9)) for i in range(20)],
    }
    for name, rows in texts.items():
        lines = [json.dumps({"text": text}) for text in rows]
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    words, sums = (str(folder / f"{name}.jsonl") for name in texts)
    first = {"until": 0.5, "weights": {words: 0.9, sums: 0.1}}
    training = {
        "context": CONTEXT,
        "tokens": STEPS * BATCH * CONTEXT,
        "batch_tokens": BATCH * CONTEXT,
        "packing": "best_fit",
        "mixture": [first, {"weights": {words: 1, sums: 4}}],
        "optimizer": {"learning_rate": 1e-2},
    }
    return Recipe.model_validate(
        {
            "name": "mixed",
            "sources": [{"path": words}, {"path": sums, "max_epochs": 1}],
            "dedup": {"fuzzy": False},
            "tokenizer": {"vocab_size": 300},
            "model": {"depth": 1, "width": 32},
            "pretrain": training,
        }
    )


def carry_out(dag: Dag, **options: Any) -> dict[str, Artifact]:
    """Every stage up to the model, in this process."""
    done: dict[str, Artifact] = {}
    for node in dag:
        inputs: dict[str, Any] = {
            key: done[value.name] for key, value in node.upstream.items() if isinstance(value, Node)
        }
        done[node.name] = build(
            node.function, dag.store, recipe=dag.recipe, **inputs, **node.literals, **options
        )
        if node.name == "pretrain":
            break
    return done


def planned(recipe: Recipe, store: Store) -> Dag:
    return plan("pretrain", Dag(recipe.name, store), recipe)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("mixed")
    recipe, store = recipe_of(folder), Store(folder / "home")
    return recipe, store, carry_out(planned(recipe, store))


def test_epochs_stated_before_are_those_trained(made: Made) -> None:
    recipe, store, done = made
    stated, _ = planned_sources(planned(recipe, store), recipe)
    model = done["pretrain"].manifest
    assert stated == model.facts["sources"]
    assert {source["source"] for source in stated} == {"words.jsonl", "sums.jsonl"}
    assert model.metrics["train_loss"] < 0.7 * model.facts["history"][0]["loss"]
    loader = Loader(
        done["shards"],
        "train",
        CONTEXT,
        recipe.seed,
        arrangement_of(done["pretrain"], done["packing"]),
    )
    targets = loader.batch(0, STEPS * BATCH)["targets"]
    assert int((targets != NO_LOSS).sum()) == model.tokens


def test_the_schedule_and_the_cap_hold_in_what_was_seen(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, store, done = made
    monkeypatch.setenv("HEADRACE_HOME", str(store.root))
    steps = [samples_seen(done["pretrain"], None, step) for step in range(1, STEPS + 1)]
    drawn = [_source(sample) for step in steps for sample in step]
    half = len(drawn) // 2
    early, late = Counter(drawn[:half]), Counter(drawn[half : half + 16])
    assert early["words"] > 0.85 * half
    assert late["sums"] > 0.7 * 16
    places = Counter(s["place"] for step in steps for s in step if _source(s) == "sums")
    (sums,) = (s for s in done["packing"].manifest.facts["sources"] if s["name"] == "sums.jsonl")
    assert set(places.values()) == {1}, "the cap is reached, and not passed"
    assert len(places) == sums["samples"]


def _source(sample: dict[str, Any]) -> str:
    """The one source of a sample's documents."""
    names = [name for piece in sample["pieces"] for name in piece["documents"]]
    (source,) = {name.split(".jsonl")[0] for name in names}
    return source


def test_a_training_that_was_stopped_ends_with_the_same_bits(
    made: Made, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    recipe, _, done = made
    again = Store(tmp_path)
    calls, progress = iter(range(1000)), Draft.progress

    def stopped(draft: Draft, *arguments: Any, **figures: Any) -> None:
        if draft.spec.stage == "pretrain" and next(calls) == 25:
            raise RuntimeError("stopped")
        progress(draft, *arguments, **figures)

    monkeypatch.setattr(Draft, "progress", stopped)
    often = Placement(checkpoint_seconds=1e-6)
    with pytest.raises(RuntimeError, match="stopped"):
        carry_out(planned(recipe, again), placement=often)
    resumed = carry_out(planned(recipe, again), placement=often)["pretrain"]
    assert next(calls) < 25 + STEPS, "the training began anew"
    name = "model.safetensors"
    assert resumed.file(name).read_bytes() == done["pretrain"].file(name).read_bytes()
    assert _losses(resumed) == _losses(done["pretrain"])


def _losses(model: Artifact) -> list[float]:
    lines = model.file("metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


def test_the_report_shows_what_was_seen_and_how_it_was_packed(made: Made) -> None:
    recipe, _, done = made
    shown = view(list(done.values()), recipe.name)
    assert shown["seen"] == done["pretrain"].manifest.facts["sources"]
    assert {name for name, _ in shown["packing"]} >= {"waste", "cut share", "unused share"}
    assert dict(shown["packing"])["unused share"] == 0, "best fit leaves nothing out"
