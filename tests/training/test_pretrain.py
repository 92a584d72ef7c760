"""The pretraining stage: what it writes, what it refuses, and that a seed fixes its bits."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.placement import Placement
from cluster.stage import build, stage
from cluster.store import Draft, Store
from model import hub
from model.objectives.modules import CausalLM
from tasks.data.text import TextWriter
from tasks.scaling.compare import compare
from tasks.scoring.evaluate import HeldoutSettings, evaluate
from tasks.tokens.loader import Loader
from tasks.tokens.shards import ShardSettings, shards
from tasks.tokens.tokenizer import TokenizerSettings, train_tokenizer
from tasks.training.job import Diverged
from tasks.training.pretrain import pretrain
from tasks.training.settings import ModelSettings, OptimizerSettings, PretrainSettings

SETTINGS = PretrainSettings(
    context=16, tokens=2_000, batch_tokens=128, optimizer=OptimizerSettings(learning_rate=1e-2)
)
MODEL = ModelSettings(depth=2, width=32)


@stage(version=1, name="text")
def write_text(word: str, draft: Draft) -> None:
    texts = [f"the {word} number {i} runs {i * i} times" for i in range(300)]
    same = ["made"] * len(texts)
    rows = {"id": list(map(str, range(300))), "text": texts, "source": same, "origin": same}
    with TextWriter(draft.path) as writer:
        writer.write(pa.table(rows | {"license": same}))


class Made:
    """Shards and tokenizer of a made-up text, and the stage run on them."""

    def __init__(self, root: Path, word: str = "wheel"):
        self.store = Store(root)
        text = build(write_text, self.store, word=word)
        self.tokenizer = build(
            train_tokenizer, self.store, text=text, settings=TokenizerSettings(vocab_size=290)
        )
        self.shards = build(
            shards, self.store, text=text, tokenizer=self.tokenizer, settings=ShardSettings()
        )

    def pretrain(
        self,
        recipe: str = "test",
        zero_stage: int = 0,
        seed: int = 0,
        settings: PretrainSettings = SETTINGS,
        **more: Any,
    ) -> Artifact:
        return build(
            pretrain,
            self.store,
            recipe=recipe,
            force=True,
            placement=Placement(zero_stage=zero_stage),
            shards=self.shards,
            tokenizer=self.tokenizer,
            settings=settings,
            model=MODEL,
            seed=seed,
            **more,
        )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def model(made: Made) -> Artifact:
    return made.pretrain()


def test_the_artifact_is_a_model_folder_with_its_history(model: Artifact) -> None:
    assert sorted(model.manifest.files) == [
        "config.json",
        "metrics.jsonl",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    rows = [json.loads(line) for line in model.file("metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, 17))
    assert model.manifest.tokens == rows[-1]["tokens"] == 16 * 128
    facts = model.manifest.facts
    assert (facts["context"], facts["seed"], facts["samples_seen"]) == (16, 0, 16 * 8)
    assert facts["history"] == [{k: row[k] for k in ("step", "loss", "lr")} for row in rows]
    assert model.manifest.metrics["train_loss"] == rows[-1]["loss"] < rows[0]["loss"] - 1


def test_the_saved_network_is_the_trained_one(made: Made, model: Artifact) -> None:
    objective = CausalLM(hub.load(model.path))
    batch = Loader(made.shards, "train", 16, 0).batch(15 * 8, 8)
    loss = objective(**{key: torch.from_numpy(array) for key, array in batch.items()}).item()
    assert loss == pytest.approx(model.manifest.metrics["train_loss"], abs=0.1)


def test_same_seed_same_bits(made: Made, model: Artifact) -> None:
    weights = [a.file("model.safetensors").read_bytes() for a in (model, made.pretrain("again"))]
    assert weights[0] == weights[1]
    assert made.pretrain("other", seed=1).file("model.safetensors").read_bytes() != weights[0]


def test_a_variant_that_diverges_is_a_row_of_the_comparison_and_never_best(
    made: Made, model: Artifact
) -> None:
    wild = OptimizerSettings(learning_rate=1e30, clip=None, schedule="constant", warmup_steps=0)
    values = {"settings": SETTINGS.model_copy(update={"optimizer": wild, "most_skipped": 0})}
    with pytest.raises(Diverged):
        made.pretrain("alone", **values)
    bad = made.pretrain("bad", variant=True, **values)
    assert (bad.manifest.facts["status"], "model.safetensors" in bad.manifest.files) == (
        "diverged",
        False,
    )
    given = {"shards": made.shards, "settings": HeldoutSettings(max_tokens=500)}
    scores = [build(evaluate, made.store, model=m, **given) for m in (bad, model)]
    variants = [{"learning_rate": 1e30}, {"learning_rate": 1e-2}]
    table = build(compare, made.store, scores=scores, variants=variants)
    failed, good = table.manifest.facts["rows"]
    assert failed == {"learning_rate": 1e30, "status": "diverged", "why": failed["why"]}
    assert table.manifest.facts["best"] == variants[1]
    assert table.manifest.metrics == {"bits_per_byte": good["bits_per_byte"]}
    none = build(compare, made.store, scores=scores[:1], variants=variants[:1])
    assert (none.manifest.facts["best"], none.manifest.metrics) == (None, {})


def test_zero_3_trains_the_real_network_alike(made: Made, model: Artifact) -> None:
    sharded = made.pretrain("sharded", zero_stage=3)
    assert sharded.manifest.metrics["train_loss"] == pytest.approx(
        model.manifest.metrics["train_loss"], rel=1e-4
    )


def test_shards_of_another_tokenizer_are_refused(made: Made, tmp_path: Path) -> None:
    other = Made(tmp_path, word="mill")
    other.tokenizer = made.tokenizer
    with pytest.raises(BadInput, match=r"encoded by another tokenizer .* tokenizer_sha256"):
        other.pretrain()


def test_sizes_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(ValueError, match="batch_tokens must be a multiple of the context 100"):
        PretrainSettings(context=100, batch_tokens=256)
    with pytest.raises(BadInput, match="heads"):
        ModelSettings(width=30, heads=7).config(vocab_size=300, context=16)
    with pytest.raises(BadInput, match="no-such"):
        ModelSettings(preset="no-such").config(vocab_size=300, context=16)
