"""The recipe `guide`: a small model of every family, trained with the same FLOPs, side by side."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.store import Store
from flows.end_to_end import plan
from flows.plan.dag import Dag
from flows.recipe import Recipe, load, overridden
from flows.variants import variants
from model import hub
from model.hub import load_headed
from tests.flows.test_adapt import carried_out

TINY = (
    "filters.preset=basic", "dedup.fuzzy=false", "tokenizer.vocab_size=320", "model.depth=1",
    "model.width=24", "model.heads=3", "pretrain.context=32", "pretrain.flops=1e8",
    "pretrain.batch_tokens=256", "classify.epochs=1", "classify.length=16", "seeds=2",
    "shards.heldout_share=0.2", "evaluate.heldout.max_tokens=500",
)  # fmt: skip
SOME = ("gpt", "bert", "t5")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    """Three of the families with two seeds each, in the small."""
    folder = tmp_path_factory.mktemp("guide")
    rows = [
        {"text": f"The wheel of mill {i} turns. Water runs {i * i} times.", "label": "ab"[i % 2]}
        for i in range(199)
    ]
    text = folder / "rows.jsonl"
    text.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = (f"sources=[{{path: {text}}}]", f"classify.data={text}")
    recipe = load("guide", (*TINY, *made))
    some = {name: recipe.variants[name] for name in SOME}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_HOME", str(folder / "home"))
        return carried_out(recipe.model_copy(update={"variants": some}), "report")


def test_every_family_has_the_same_training_flops_within_a_batch() -> None:
    recipe = load("guide")
    for one in variants(recipe):
        about, training = one.network, one.recipe.training
        batch = about["flops"] / training.steps
        assert 0 <= recipe.training.flops - about["flops"] < batch, one.label
        assert about["tokens"] == training.steps * training.batch_tokens


def test_every_family_is_scored_on_text_and_on_classes_with_every_seed(tmp_path: Path) -> None:
    recipe = load("guide")
    names = [node.name for node in plan("all", Dag("guide", Store(tmp_path)), recipe)]
    for stage in ("pretrain", "evaluate", "classify"):
        wanted = {f"{stage}/{name},seed={seed}" for name in recipe.variants for seed in range(3)}
        assert {name for name in names if name.startswith(f"{stage}/")} == wanted
    assert names[-2:] == ["compare", "report"]
    assert names.count("redact") == 1


def test_one_table_has_all(done: dict[str, Artifact]) -> None:
    facts = done["compare"].manifest.facts
    assert facts["metric"] == "accuracy" and facts["higher_is_better"]
    assert [one["label"] for one in facts["variants"]] == list(SOME)
    for one in facts["variants"]:
        assert one["n"] == 2 and one["interval"][0] <= one["mean"] <= one["interval"][1]
        params = done[f"pretrain/{one['label']},seed=0"].manifest.metrics["params"]
        assert one["network"]["params"] == params
    coded, *others = [one["bits_per_byte"] for one in facts["variants"]]
    text = [done[f"evaluate/gpt,seed={seed}"].manifest.metrics for seed in (0, 1)]
    assert coded == pytest.approx(sum(one["bits_per_byte"] for one in text) / 2)
    assert others == [None, None]


def test_the_report_shows_table_and_chart(done: dict[str, Artifact]) -> None:
    page = done["report"].file("report.html").read_text()
    section = page[page.index("<h2>Variants</h2>") :]
    for told in ("encoder-decoder, span corruption", "next sentence", "parameters", "FLOPs"):
        assert told in section
    assert "higher is better" in section
    order = ("<svg", "<th>network</th>", "<h2>Data</h2>")
    assert [section.index(one) for one in order] == sorted(section.index(one) for one in order)
    assert "<h2>Training</h2>" not in page and "What the classifier confuses" not in page


def test_both_halves_of_an_encoder_decoder_read_the_text(done: dict[str, Artifact]) -> None:
    module = load_headed(done["classify/t5,seed=0"].path).eval()
    import torch

    short = torch.arange(5, 11)[None]
    padded = torch.nn.functional.pad(short, (0, 3))
    documents = (padded > 0).long()
    alone, beside = module.scores(short), module.scores(padded, documents)
    assert torch.allclose(alone, beside, atol=1e-5)
    assert not torch.allclose(alone, module.scores(short.flip(1)))


def test_tokens_or_flops() -> None:
    with pytest.raises(BadInput, match="give tokens or flops"):
        load("guide", ("pretrain.tokens=5000",))
    few, many = (load("smoke", (f"pretrain={{context: 64, flops: {n}}}",)) for n in (1e10, 4e10))
    assert few.training.tokens < many.training.tokens
    wide = overridden(many, {"model.width": 64})
    assert wide.training.tokens < many.training.tokens
    assert Recipe.model_validate(many.model_dump(mode="json")) == many
    assert load("guide", ("pretrain.flops=null",)).training.tokens == 1_000_000


def test_a_name_and_its_changes_join_with_what_else_is_varied() -> None:
    said = ["variants={a: {model.depth: 1}, b: {}}", "over={model.width: [32, 64]}"]
    found = variants(load("smoke", said))
    assert [one.label for one in found] == ["a,width=32", "a,width=64", "b,width=32", "b,width=64"]
    assert [one.recipe.model.depth for one in found] == [1, 1, 2, 2]
    assert found[0].values == {"model.depth": 1, "model.width": 32}


def test_a_family_that_is_varied_brings_its_objective() -> None:
    recipe = load("smoke", ["over={model.family: [decoder, encoder]}"])
    assert [one.recipe.training.objective for one in variants(recipe)] == ["causal", "masked"]


def test_the_ablations_change_one_part_of_the_transformer_at_a_time() -> None:
    recipe = load("guide-ablations")
    shapes = {one.label: one.recipe.model.config(1_024, 48) for one in variants(recipe)}
    assert recipe.seeds == 3 and recipe.from_nothing
    base = asdict(shapes.pop("base"))
    assert (base["positions"], base["norm_placement"], base["head_dim"]) == (
        "sinusoidal",
        "post",
        16,
    )
    changed = {
        label: {key for key, value in asdict(shape).items() if value != base[key]}
        for label, shape in shapes.items()
    }
    parts = {label: label.split(",")[1].split("=")[0] for label in changed}
    assert list(parts.values()).count("heads") == 3 and len(set(parts.values())) == 5
    for label, part in parts.items():
        assert changed[label] == ({part} if part != "heads" else {part, "kv_heads", "head_dim"})


def test_ablations_are_compared_by_what_was_translated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    rows = [
        {
            "code": f"The wheel of mill {i} turns all day. Water runs {i} times below it.",
            "tree": f"{i} the wheel",
        }
        for i in range(60)
    ]
    pairs = tmp_path / "rows.jsonl"
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = (
        f"sources=[{{path: {pairs}, text: code}}]", "filters.preset=basic", "dedup.fuzzy=false",
        f"translate.data={pairs}", "tokenizer.vocab_size=280", "seeds=2", "translate.epochs=2",
        "over={model.positions: [learned]}",
    )  # fmt: skip
    done = carried_out(load("guide-ablations", said), "report")
    facts = done["compare"].manifest.facts
    assert facts["metric"] == "bleu" and facts["higher_is_better"]
    assert [one["label"] for one in facts["variants"]] == ["base", "base,positions=learned"]
    assert all(one["n"] == 2 for one in facts["variants"])
    kept = [
        hub.load_config(done[f"translate/{one['label']},seed=0"].path) for one in facts["variants"]
    ]
    assert [one.positions for one in kept] == ["sinusoidal", "learned"]
