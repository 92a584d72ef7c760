"""How much of a model is trained, through stages: all, its head, its last layers, adapters."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.placement import Placement
from cluster.stage import build, stage
from cluster.store import Draft, Store
from model import hub
from model.head_config import Head
from model.heads import Headed
from model.optim import parameter_groups
from tasks.inference.generation import load_model
from tasks.training.job import CHECKPOINTS
from tasks.tuning.class_weights import weights_of
from tasks.tuning.classify.stage import classify
from tasks.tuning.instruct.settings import InstructSettings
from tasks.tuning.instruct.stage import instruct
from tasks.tuning.settings import EarlyStoppingSettings
from tests.tuning.test_classify import ROWS, settings, write

LORA = {"train": "lora", "lora": {"rank": 4, "matrices": ["query", "value", "feedforward"]}}


@stage(version=1)
def lively(base: Artifact, draft: Draft) -> None:
    """The toy, no matrix of which is zero, as after pretraining."""
    network = hub.load(base.path)
    torch.manual_seed(0)
    for parameter in network.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    hub.save(draft.path, network)
    shutil.copyfile(base.file("tokenizer.json"), draft.path / "tokenizer.json")


@pytest.fixture(scope="module")
def base(base: Artifact, tuning_store: Store) -> Artifact:
    return build(lively, tuning_store, base=base)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("rows") / "rows.jsonl", ROWS)


def changed(base: Artifact, tuned: Artifact) -> set[str]:
    """The weights that are no longer, to the bit, those of the base."""
    before, after = (load_file(a.file("model.safetensors")) for a in (base, tuned))
    shared = before.keys() & after.keys()
    return {name for name in shared if not torch.equal(before[name], after[name])}


@pytest.mark.parametrize(
    ("how", "zero_stage"), [("head", 0), ("last", 1), ("lora", 0), ("lora", 2), ("lora", 3)]
)
def test_what_is_frozen_stays_as_it_was(
    base: Artifact, tmp_path: Path, data: str, how: str, zero_stage: int
) -> None:
    """Where ZeRO cuts the rest into slices, too, and with checkpoints between the steps."""
    tuned = build(
        classify,
        Store(tmp_path),
        model=base,
        settings=settings(data, **{**LORA, "train": how, "epochs": 2}),
        seed=0,
        placement=Placement(checkpoint_seconds=0.001, zero_stage=zero_stage),
    )
    found = changed(base, tuned)
    if how == "head":
        assert not found
    elif how == "last":
        assert found
        assert all(name.startswith(("model.layers.1.", "model.norm")) for name in found)
    else:
        assert {name.split(".")[-2] for name in found} == {
            *("q_proj", "v_proj"),
            *("gate_proj", "up_proj", "down_proj"),
        }
    losses = [row["loss"] for row in tuned.manifest.facts["history"]]
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])


def test_adapters_lie_beside_the_whole_model(base: Artifact, tmp_path: Path, data: str) -> None:
    tuned = build(classify, Store(tmp_path), model=base, settings=settings(data, **LORA), seed=0)
    assert tuned.manifest.metrics["accuracy"] > 0.8
    network, _ = load_model(tuned.path / "adapter")
    whole = load_model(tuned.path)[0].state_dict()
    for name, weight in whole.items():
        torch.testing.assert_close(weight, network.state_dict()[name], atol=1e-6, rtol=1e-6)


def test_frozen_matrices_are_kept_in_4_bits(base: Artifact, tmp_path: Path, data: str) -> None:
    """What was taught them is in the whole model, beside what 4 bits leave of the base."""
    pytest.importorskip("bitsandbytes")
    how = settings(data, train="lora", lora={**LORA["lora"], "bits": 4})
    tuned = build(classify, Store(tmp_path), model=base, settings=how, seed=0)
    assert tuned.manifest.metrics["accuracy"] > 0.8
    before, after = (load_file(a.file("model.safetensors")) for a in (base, tuned))
    adapter = load_file(tuned.path / "adapter/adapter_model.safetensors")
    name = "model.layers.0.mlp.down_proj"
    down, up = (adapter[f"base_model.model.{name}.lora_{ab}.weight"] for ab in "AB")
    kept = after[f"{name}.weight"] - 16 / 4 * (up @ down)
    lost = (kept - before[f"{name}.weight"]).norm() / before[f"{name}.weight"].norm()
    assert 0.03 < lost < 0.15
    with pytest.raises(BadInput, match=r"zero_stage is 3.* lora\.bits: set it to 2"):
        store, sharded = Store(tmp_path / "sharded"), Placement(zero_stage=3)
        build(classify, store, model=base, settings=how, seed=0, placement=sharded)


class Killed(BaseException):
    """As a kill would end it."""


def test_a_killed_training_of_adapters_ends_with_the_same_bits_from_a_small_checkpoint(
    base: Artifact, tmp_path: Path, data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    how = {"model": base, "settings": settings(data, **LORA), "seed": 0}
    whole = build(classify, Store(tmp_path / "whole"), **how)
    from tasks.training.loop import Trainer

    sizes = []

    def kill(trainer: Trainer, step: int, *rest: Any) -> Any:
        if step == 9:
            folder = trainer.job.scratch / CHECKPOINTS
            sizes.extend(p.stat().st_size for p in folder.glob("step-*/rank-*"))
            raise Killed
        return original(trainer, step, *rest)

    original, store = Trainer.step, Store(tmp_path / "killed")
    often = Placement(checkpoint_seconds=0.001)
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(Trainer, "step", kill)
        build(classify, store, **how, placement=often)
    again = build(classify, store, **how, placement=often)
    for name in ("adapter/adapter_model.safetensors", "model.safetensors"):
        assert again.manifest.files[name] == whole.manifest.files[name]
    weights = base.file("model.safetensors").stat().st_size
    assert sizes
    assert max(sizes) < weights, "three times as many numbers are kept of all that is trained"


def test_an_instruct_tuning_has_adapters_too_and_no_head_of_its_own(
    base: Artifact, tmp_path: Path
) -> None:
    rows = [{"instruction": f"what is {i}?", "response": f"it is {i}"} for i in range(40)]
    data = write(tmp_path / "pairs.jsonl", rows)
    how: dict[str, Any] = {"data": data, "tokens": 2_000, "batch_tokens": 256, "heldout_share": 0.2}
    tuned = build(
        instruct,
        Store(tmp_path),
        model=base,
        settings=InstructSettings(**how, **LORA),
        seed=0,
    )
    metrics = tuned.manifest.metrics
    assert metrics["answer_loss"] < metrics["answer_loss_before"]
    assert json.loads((tuned.path / "adapter/adapter_config.json").read_text())["r"] == 4
    with pytest.raises(BadInput, match="leaves nothing to train"):
        build(
            instruct,
            Store(tmp_path),
            model=base,
            settings=InstructSettings(**how, train="head"),
            seed=0,
        )


def test_a_tuning_that_stops_early_tells_when(base: Artifact, tmp_path: Path) -> None:
    rows = [{"instruction": f"what is {i}?", "response": f"it is {i * 7919}"} for i in range(40)]
    data = write(tmp_path / "pairs.jsonl", rows)
    stopping = EarlyStoppingSettings(share=0.2, looks=20, patience=2)
    how: dict[str, Any] = {"data": data, "tokens": 20_000, "batch_tokens": 128}
    tuned = build(
        instruct,
        Store(tmp_path),
        model=base,
        settings=InstructSettings(**how, early_stopping=stopping),
        seed=0,
    )
    facts, metrics = tuned.manifest.facts, tuned.manifest.metrics
    assert facts["best_step"] < facts["steps_trained"] < 156
    lines = tuned.file("metrics.jsonl").read_text().splitlines()
    looked = [json.loads(line)["validation_loss"] for line in lines if "validation_loss" in line]
    assert metrics["validation_loss"] == min(looked)


def test_a_classifier_stops_early_too(base: Artifact, tmp_path: Path, data: str) -> None:
    stopping = EarlyStoppingSettings(share=0.2, looks=30, patience=1)
    asked = settings(data, early_stopping=stopping, epochs=20)
    tuned = build(classify, Store(tmp_path), model=base, settings=asked, seed=0)
    facts = tuned.manifest.facts
    assert facts["steps_trained"] < round(20 * 72 / 12)
    assert facts["best_step"] < facts["steps_trained"]
    assert tuned.manifest.metrics["accuracy"] > 0.8


def test_classes_count_what_they_are_said_to(base: Artifact, tmp_path: Path, data: str) -> None:
    """A class that counts next to nothing is never named; equal ones are balanced already."""
    how: dict[str, Any] = {"model": base, "seed": 0}
    asked = settings(data, class_weights={"sea": 1e-6}, epochs=3)
    tuned = build(classify, Store(tmp_path / "one"), settings=asked, **how)
    assert tuned.manifest.facts["confusion"] == [[0, 15], [0, 15]]
    losses = []
    for weights in (None, "balanced"):
        asked = settings(data, class_weights=weights, epochs=1)
        tuned = build(classify, Store(tmp_path / str(weights)), settings=asked, **how)
        losses.append([row["loss"] for row in tuned.manifest.facts["history"]])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    with pytest.raises(BadInput, match="no class 'see'; did you mean 'sea'"):
        asked = settings(data, class_weights={"see": 2.0})
        build(classify, Store(tmp_path), settings=asked, **how)


def test_balanced_classes_count_alike() -> None:
    (weights,) = weights_of("balanced", ["a", "b"], {"a": 30, "b": 10}).values()
    assert weights.tolist() == pytest.approx([2 / 3, 2.0])


def test_more_last_layers_than_there_are_is_refused(
    base: Artifact, tmp_path: Path, data: str
) -> None:
    with pytest.raises(BadInput, match="last_layers is 3, the model has 2"):
        build(
            classify,
            Store(tmp_path),
            model=base,
            settings=settings(data, train="last", last_layers=3),
            seed=0,
        )


def test_each_layer_has_its_share_of_the_rate_of_the_one_above(base: Artifact) -> None:
    module = Headed(hub.load(base.path), Head("sequence", 2))  # type: ignore[arg-type]
    rates = {g["name"]: g["lr"] for g in parameter_groups(module, 1.0, 0.1, layer_decay=0.5)}
    assert rates == {
        "matrices/1": 0.5,
        "matrices/2": 0.25,
        "head": 1.0,
        "head/3": 0.125,
        "vectors": 1.0,
        "vectors/1": 0.5,
        "vectors/2": 0.25,
    } or rates.keys() >= {"embeddings/3"}


def test_a_stage_trains_with_these_rates(base: Artifact, tmp_path: Path, data: str) -> None:
    tuned = build(
        classify,
        Store(tmp_path),
        model=base,
        settings=settings(data, layer_decay=0.5, epochs=1),
        seed=0,
    )
    row = json.loads(tuned.file("metrics.jsonl").read_text().splitlines()[-1])
    assert row["lr/matrices/2"] == 0.5 * row["lr/matrices/1"] == 0.25 * row["lr"]
