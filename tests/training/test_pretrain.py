"""The pretraining stage: what it writes, what it refuses, and that a seed fixes its bits."""

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from safetensors.torch import load_file

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.placement import Placement
from cluster.stage import build, stage
from cluster.store import Draft, Store
from cluster.tracking import NullTracker
from model import hub
from model.flops import flops_per_token
from model.objectives.modules import CausalLM
from tasks.data.text import TextWriter
from tasks.evaluation.heldout.settings import HeldoutSettings
from tasks.evaluation.heldout.stage import evaluate
from tasks.scaling.variants.stage import compare
from tasks.tokens.encoder import load
from tasks.tokens.loader import Loader
from tasks.tokens.shards.settings import ShardSettings
from tasks.tokens.shards.stage import shards
from tasks.tokens.vocabulary.settings import TokenizerSettings
from tasks.tokens.vocabulary.stage import train_tokenizer
from tasks.training import weights
from tasks.training.job import Diverged
from tasks.training.model_settings import ModelSettings
from tasks.training.settings import OptimizerSettings, PretrainSettings
from tasks.training.stage import pretrain

SETTINGS = PretrainSettings(
    context=16, tokens=2_000, batch_tokens=128, optimizer=OptimizerSettings(learning_rate=1e-2)
)
MODEL = ModelSettings(depth=2, width=32)


@stage(version=1, name="text")
def write_text(texts: list[str], draft: Draft) -> None:
    same = ["made"] * len(texts)
    rows = {"id": list(map(str, range(len(texts)))), "text": texts, "source": same, "origin": same}
    with TextWriter(draft.path) as writer:
        writer.write(pa.table(rows | {"license": same}))


def told_of(word: str) -> list[str]:
    return [f"the {word} number {i} runs {i * i} times" for i in range(300)]


class Made:
    """Shards and tokenizer of some made-up texts, and the stage run on them."""

    def __init__(self, root: Path, texts: list[str], vocab_size: int = 290):
        self.store = Store(root)
        text = build(write_text, self.store, texts=texts)
        self.tokenizer = build(
            train_tokenizer,
            self.store,
            text=text,
            settings=TokenizerSettings(vocab_size=vocab_size),
        )
        self.shards = build(
            shards, self.store, text=text, tokenizer=self.tokenizer, settings=ShardSettings()
        )

    def pretrain(
        self,
        recipe: str = "test",
        seed: int = 0,
        settings: PretrainSettings = SETTINGS,
        placement: Placement | None = None,
        **more: Any,
    ) -> Artifact:
        return build(
            pretrain,
            self.store,
            recipe=recipe,
            force=True,
            placement=placement,
            shards=self.shards,
            tokenizer=self.tokenizer,
            settings=settings,
            model=MODEL,
            seed=seed,
            **more,
        )


def rows_of(model: Artifact) -> list[dict[str, Any]]:
    return [json.loads(line) for line in model.file("metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("store"), told_of("wheel"))


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
    rows = rows_of(model)
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


def test_a_model_too_large_for_one_file_is_several_with_an_index(
    made: Made, model: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On its way out of training too, where no process ever holds more than a file of it."""
    monkeypatch.setattr(weights, "LARGEST", 20_000)
    monkeypatch.setattr(hub, "LARGEST", 20_000)
    parts = made.pretrain("parts", placement=Placement(zero_stage=3))
    files = sorted(n for n in parts.manifest.files if n.startswith("model"))
    assert files[0] == f"model-00001-of-{len(files) - 1:05d}.safetensors" and len(files) > 3
    assert files[-1] == "model.safetensors.index.json"
    index = json.loads(parts.file(files[-1]).read_text())
    whole = load_file(model.file("model.safetensors"))
    assert index["weight_map"].keys() == whole.keys()
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in whole.values())
    for name, tensor in hub.tensors(parts.path).items():
        torch.testing.assert_close(tensor, whole[name], rtol=0, atol=1e-5)
    assert all(parts.file(n).stat().st_size < 60_000 for n in files)


def test_a_model_is_trained_on_shard_by_shard_as_it_is_whole(
    made: Made, model: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the weights that it has, of which a rank keeps its part as they are read."""
    whole = made.pretrain("whole", start=model)
    monkeypatch.setattr(hub, "load", None)  # which makes a network of them
    parts = made.pretrain("parts", start=model, placement=Placement(zero_stage=3))
    losses = [[row["loss"] for row in rows_of(made)] for made in (whole, parts)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert losses[0][0] < rows_of(model)[0]["loss"] - 1


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
    runs: list[dict[str, Any]] = [
        {"label": n, "values": {"learning_rate": n}, "seed": 0, "network": {}}
        for n in ("1e30", "1e-2")
    ]
    facts = build(compare, made.store, scores=scores, runs=runs).manifest.facts
    failed, good = facts["rows"]
    assert (failed["status"], failed["seed"], "bits_per_byte" in failed) == ("diverged", 0, False)
    assert (good["learning_rate"], facts["variants"][1]["mean"]) == ("1e-2", good["bits_per_byte"])
    assert facts["variants"][0]["why"] == f"seed 0: {failed['why']}" and facts["best"] is None


def test_rows_tell_the_speed_in_flops_and_the_share_of_the_devices_peak(model: Artifact) -> None:
    config = MODEL.config(model.manifest.facts["vocab_size"], SETTINGS.context)
    for row in rows_of(model):
        expected = flops_per_token(config) * row["tokens_per_second"]
        assert row["flops_per_second"] == pytest.approx(expected, rel=0.01)
        assert 0 < row["mfu"] < 1
    shares = [row["mfu"] for row in rows_of(model)]
    assert min(shares) <= model.manifest.metrics["mfu"] <= max(shares)


GARBAGE = "\u0394\u03bb\u221e\u03a9" * 4


def test_a_batch_of_garbage_is_skipped_as_often_as_the_settings_allow(tmp_path: Path) -> None:
    """One in a hundred documents is nothing like the others, and a batch is one sample."""
    draw = random.Random(0)
    texts = ["".join(draw.choices("ab", k=40)) for _ in range(300)]
    texts[60::100] = [GARBAGE] * 3
    made = Made(tmp_path, texts, vocab_size=260)
    how = {"tokens": 2_400, "batch_tokens": 16}
    skipping, never = (SETTINGS.model_copy(update={**how, "most_skipped": n}) for n in (9, 0))
    model = made.pretrain("skipping", settings=skipping)
    skipped = model.manifest.facts["skipped_batches"]
    assert skipped
    encoder = load(made.tokenizer)
    order = Loader(made.shards, "train", 16, 0)
    for step in skipped:
        read = encoder.decode(order.batch(step - 1, 1)["inputs"][0].tolist())
        assert set(read) & set(GARBAGE)
    assert [row["step"] for row in rows_of(model)] == list(range(1, 151))
    everything = made.pretrain("never", settings=never)
    assert everything.manifest.facts["skipped_batches"] == []
    worst = [max(row["loss"] for row in rows_of(m)[20:]) for m in (model, everything)]
    assert worst[0] < worst[1] / 2


class Stopping(NullTracker):
    """Ends a training when a checkpoint has made its first rows final."""

    def metrics(self, rows: Sequence[Mapping[str, float]]) -> None:
        raise KeyboardInterrupt


def test_a_stopped_training_goes_on_with_micro_batches_of_another_size(
    made: Made, model: Artifact, caplog: pytest.LogCaptureFixture
) -> None:
    """What an out-of-memory message advises to lower costs neither stages nor checkpoints."""
    how = {"seed": 3, "settings": SETTINGS}
    with pytest.raises(KeyboardInterrupt):
        whole = Placement(checkpoint_seconds=1e-6)
        made.pretrain("cut", placement=whole, tracker=Stopping(), **how)
    lower = Placement(micro_batch_tokens=40)
    with caplog.at_level("INFO"):
        resumed = made.pretrain("cut", placement=lower, **how)
    assert "going on from" in caplog.text
    expected = [row["loss"] for row in rows_of(made.pretrain("whole", **how))]
    assert [row["loss"] for row in rows_of(resumed)] == pytest.approx(expected, rel=1e-5)


def test_zero_3_trains_the_real_network_alike(made: Made, model: Artifact) -> None:
    sharded = made.pretrain("sharded", placement=Placement(zero_stage=3))
    assert sharded.manifest.metrics["train_loss"] == pytest.approx(
        model.manifest.metrics["train_loss"], rel=1e-4
    )


def test_shards_of_another_tokenizer_are_refused(made: Made, tmp_path: Path) -> None:
    other = Made(tmp_path, told_of("mill"))
    other.tokenizer = made.tokenizer
    with pytest.raises(BadInput, match=r"encoded by another tokenizer .* SHA-256"):
        other.pretrain()


def test_sizes_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(ValueError, match="batch_tokens must be a multiple of the context 100"):
        PretrainSettings(context=100, batch_tokens=256)
    with pytest.raises(BadInput, match="heads"):
        ModelSettings(width=30, heads=7).config(vocab_size=300, context=16)
    with pytest.raises(BadInput, match="no-such"):
        ModelSettings(preset="no-such").config(vocab_size=300, context=16)
