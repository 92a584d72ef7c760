"""Stage `distill`: classifiers and language models, and who may teach whom."""

import json
import random
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
from model.heads import Headed
from model.shapes import from_depth
from model.shrink import shrunk
from model.transformer import Transformer
from tasks.training.settings import OptimizerSettings
from tasks.tuning.classify.settings import ClassifySettings
from tasks.tuning.classify.stage import classify
from tasks.tuning.distill.learners import distilled
from tasks.tuning.distill.settings import DistillSettings
from tasks.tuning.distill.stage import distill
from tasks.tuning.settings import EarlyStoppingSettings

WORDS = {"sea": ["boat", "wave", "fish", "salt"], "sky": ["bird", "cloud", "star", "wind"]}
RATE = OptimizerSettings(learning_rate=1e-2)
PLAIN = {"optimizer": RATE, "length": 24, "batch_rows": 12}


def text(label: str, number: int) -> str:
    draw = random.Random(f"{label}{number}")
    return " ".join(draw.choices(WORDS[label], k=4)) + f" {number}"


ROWS = [{"text": text(label, i), "label": label} for label in WORDS for i in range(60)]
HELD = [{"text": text(label, i), "label": label} for label in WORDS for i in range(60, 80)]


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("rows") / "rows.jsonl", ROWS)


@pytest.fixture(scope="module")
def heldout(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("rows") / "heldout.jsonl", HELD)


@pytest.fixture(scope="module")
def teacher(base: Artifact, tuning_store: Store, data: str, heldout: str) -> Artifact:
    asked = ClassifySettings(data=data, heldout=heldout, epochs=6, **PLAIN)  # type: ignore[arg-type]
    return build(classify, tuning_store, model=base, settings=asked, seed=0)


def settings(**values: Any) -> DistillSettings:
    return DistillSettings(**{**PLAIN, "epochs": 3, **values})


def test_a_student_without_labels_learns_the_classes_of_its_teacher(
    base: Artifact, teacher: Artifact, tuning_store: Store, tmp_path: Path, heldout: str
) -> None:
    bare = write(tmp_path / "bare.jsonl", [{"text": row["text"]} for row in ROWS])
    asked = settings(data=bare, heldout=heldout, teacher=str(teacher.path), layers=1)
    made = build(distill, tuning_store, model=base, settings=asked, seed=0)
    metrics = made.manifest.metrics
    assert metrics["accuracy_teacher"] > 0.9
    assert metrics["accuracy_low"] < metrics["accuracy"] <= metrics["accuracy_high"]
    assert metrics["accuracy"] > 0.9 > metrics["accuracy_majority"]
    assert metrics["agreement"] > 0.9
    assert metrics["params"] < metrics["params_teacher"]
    student = hub.load_headed(made.path)
    assert student.network.config.depth == 1
    assert made.read_json("config.json")["id2label"] == {"0": "sea", "1": "sky"}
    history = made.manifest.facts["history"]
    assert history[-1]["soft_loss"] < history[0]["soft_loss"]
    assert {row["hard_loss"] for row in history} == {0.0}


@pytest.mark.parametrize("family", ["decoder", "encoder"])
def test_a_language_model_comes_nearer_to_its_teacher(
    base: Artifact, encoder_base: Artifact, tuning_store: Store, data: str, family: str
) -> None:
    model = base if family == "decoder" else encoder_base
    other = build(louder, tuning_store, model=model)
    asked = settings(data=data, teacher=str(other.path), hard=0.0, epochs=6, length=16)
    made = build(distill, tuning_store, model=model, settings=asked, seed=0)
    history = made.manifest.facts["history"]
    assert history[-1]["soft_loss"] < 0.5 * history[0]["soft_loss"]
    assert history[-1]["hidden_loss"] < 0.7 * history[0]["hidden_loss"]
    metrics = made.manifest.metrics
    gap = abs(metrics["loss_before"] - metrics["loss_teacher"])
    assert abs(metrics["loss"] - metrics["loss_teacher"]) < gap


@stage(version=1)
def louder(model: Artifact, draft: Draft) -> None:
    """A model of the same tokens that is sure of other things."""
    for name in ("config.json", "tokenizer.json"):
        (draft.path / name).write_bytes(model.file(name).read_bytes())
    torch.manual_seed(1)
    network = Transformer(hub.load_config(model.path))
    with torch.no_grad():
        for weight in network.parameters():
            weight.mul_(2 if weight.ndim == 2 else 1)
    hub.save(draft.path, network)


def test_half_of_the_layers_learn_from_all_until_it_helps_no_more(
    base: Artifact, tuning_store: Store, data: str
) -> None:
    stopping = EarlyStoppingSettings(share=0.3, looks=3)
    asked = settings(data=data, layers=1, length=16, early_stopping=stopping)
    made = build(distill, tuning_store, model=base, settings=asked, seed=0)
    rows = [json.loads(line) for line in made.file("metrics.jsonl").read_text().splitlines()]
    assert sum("validation_loss" in row for row in rows) >= 3
    assert made.manifest.facts["best_step"] <= made.manifest.facts["steps_trained"]
    assert hub.load_config(made.path).depth == 1
    assert made.manifest.metrics["params"] < made.manifest.metrics["params_teacher"]


def test_weights_do_not_depend_on_micro_batches(
    base: Artifact, teacher: Artifact, tmp_path: Path, data: str
) -> None:
    asked = settings(data=data, teacher=str(teacher.path), layers=1, epochs=1)
    made = [
        build(
            distill, Store(tmp_path / str(n)), model=base, settings=asked, seed=0, placement=where
        )
        for n, where in enumerate((Placement(), Placement(micro_batch_tokens=72)))
    ]
    first, second = (load_file(one.file("model.safetensors")) for one in made)
    assert all(torch.allclose(first[name], second[name], atol=1e-4) for name in first)


def test_a_student_is_made_of_every_other_layer() -> None:
    torch.manual_seed(0)
    network = Transformer(from_depth(6, vocab_size=50, context=16, width=32, heads=2))
    student = shrunk(network, 3)
    for new, old in enumerate((0, 2, 4)):
        mine, theirs = student.blocks[new].state_dict(), network.blocks[old].state_dict()
        assert all(mine[name].equal(theirs[name]) for name in theirs)
    assert student.embedding.weight.equal(network.embedding.weight)
    inputs = torch.randint(50, (2, 8))
    assert shrunk(network, 6)(inputs).equal(network(inputs))
    with pytest.raises(ValueError, match="layers is 7; the model has 6"):
        shrunk(network, 7)


def test_a_student_of_a_classifier_keeps_its_head(
    teacher: Artifact, tuning_store: Store, data: str
) -> None:
    module = distilled(teacher.path, settings(data=data, layers=1))
    assert isinstance(module.student, Headed) and isinstance(module.teacher, Headed)
    assert module.student.classifier.weight.equal(module.teacher.classifier.weight)
    assert not any(name.startswith("_teacher") for name, _ in module.named_parameters())


def test_other_tokens_another_family_and_other_widths_are_refused(
    base: Artifact, encoder_base: Artifact, tuning_store: Store, data: str
) -> None:
    with pytest.raises(BadInput, match=r"reads other tokens than .*SHA-256"):
        distilled(base.path, settings(data=data, teacher=str(encoder_base.path)))
    wide = build(resized, tuning_store, model=base, family="decoder", width=64)
    with pytest.raises(BadInput, match="32 wide and the teacher's 64"):
        distilled(base.path, settings(data=data, teacher=str(wide.path), hidden=1.0))
    assert distilled(base.path, settings(data=data, teacher=str(wide.path))).shares.hidden == 0
    other = build(resized, tuning_store, model=base, family="encoder", width=32)
    with pytest.raises(BadInput, match=r"is of family encoder, and .* of family decoder"):
        distilled(base.path, settings(data=data, teacher=str(other.path)))


@stage(version=1)
def resized(model: Artifact, family: str, width: int, draft: Draft) -> None:
    """Another network of the same tokens."""
    (draft.path / "tokenizer.json").write_bytes(model.file("tokenizer.json").read_bytes())
    size = hub.load_config(model.path).vocab_size
    config = from_depth(2, vocab_size=size, context=64, width=width, heads=2, family=family)
    hub.save(draft.path, Transformer(config))


def test_a_class_the_teacher_does_not_know_is_named(
    base: Artifact, teacher: Artifact, tuning_store: Store, tmp_path: Path
) -> None:
    path = write(tmp_path / "rows.jsonl", [*ROWS, {"text": "a stone", "label": "earth"}])
    asked = settings(data=path, teacher=str(teacher.path))
    with pytest.raises(BadInput, match="class 'earth' is none of the teacher's: sea, sky"):
        build(distill, tuning_store, model=base, settings=asked, seed=0)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "name a `teacher`, or how many `layers`"),
        ({"layers": 1, "soft": 0.0, "hidden": 0.0}, "the teacher would teach nothing"),
    ],
)
def test_settings_that_teach_nothing_are_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        settings(data="x.jsonl", **values)
