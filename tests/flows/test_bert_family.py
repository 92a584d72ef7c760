"""The recipes of BERT's family, made smaller: pretrained, read by Transformers, given a head."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.store import Store
from flows.recipe import load
from model import hub
from model.heads import Headed
from tasks.training.costs import training_flops
from tests.flows.test_adapt import carried_out

TINY = (
    "filters.preset=basic", "dedup.fuzzy=false", "tokenizer.vocab_size=320", "model.depth=2",
    "model.width=24", "model.heads=3", "pretrain.context=32", "pretrain.tokens=2_048",
    "pretrain.batch_tokens=256", "classify.epochs=1",
)  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A text to pretrain on, and rows with classes."""
    folder = tmp_path_factory.mktemp("text")
    rows = [
        {"text": f"The wheel of mill {i} turns. Water runs {i * i} times.", "label": "ab"[i % 2]}
        for i in range(199)
    ]
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"sources=[{{path: {path}}}]", f"classify.data={path}"


def made(files: tuple[str, str], name: str, *more: str, last: str = "classify") -> dict[str, Any]:
    return carried_out(load(name, (*TINY, *files, *more)), last)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    return Store()


def check_published(folder: Path, model_class: Any) -> None:
    """Transformers reads the folder whole, and gives the logits that the network does here."""
    model, report = model_class.from_pretrained(folder, output_loading_info=True)
    beside = {name for name in report["unexpected_keys"] if "pooler" not in name}
    assert not report["missing_keys"] and not beside
    inputs = torch.arange(5, 25)[None]
    network = (
        hub.load_headed(folder) if "Sequence" in model_class.__name__ else hub.load(folder)
    ).eval()
    with torch.no_grad():
        expected = model.eval()(inputs, attention_mask=torch.ones_like(inputs)).logits
        if isinstance(network, Headed):
            found = network.scores(inputs)
        else:
            states = network(inputs)
            found = network.detector(states) if network.config.detector else network.logits(states)
    assert torch.allclose(found, expected, atol=1e-5)


def check_kept(done: dict[str, Artifact], architecture: str) -> None:
    """The pretrained model and the classifier are Transformers' own classes."""
    import transformers

    about = hub.read_config(done["pretrain"].path)
    assert about["architectures"] == [architecture]
    check_published(done["pretrain"].path, getattr(transformers, architecture))
    check_published(done["classify"].path, transformers.AutoModelForSequenceClassification)


def test_electra_leaves_its_generator_behind(files: tuple[str, str], store: Store) -> None:
    done = made(files, "electra", "evaluate.heldout.max_tokens=2_000")
    check_kept(done, "ElectraForPreTraining")
    config = hub.load_config(done["pretrain"].path)
    assert (config.embedding_width, config.width) == (12, 24)
    own = done["pretrain"].path / "objective" / "model.safetensors"
    names = load_file(own)
    assert names and all(name.startswith("generator.") for name in names)
    assert names["generator.blocks.0.attention.inner.qkv.weight"].shape == (24, 8)


def test_albert_has_one_layer_and_learns_the_order_of_texts(
    files: tuple[str, str], store: Store
) -> None:
    done = made(files, "albert", "evaluate.heldout.max_tokens=2_000")
    check_kept(done, "AlbertForMaskedLM")
    assert {"pairs_loss", "pairs_accuracy"} <= done["evaluate"].manifest.metrics.keys()
    network = hub.load(done["pretrain"].path)
    assert network.blocks[0] is network.blocks[1] and network.config.embedding_width == 4


def test_a_network_of_distilbert_is_pretrained(files: tuple[str, str], store: Store) -> None:
    done = made(files, "encoder", "model.preset=distilbert-base-uncased")
    check_kept(done, "DistilBertForMaskedLM")


def test_deberta_fills_in_masks(files: tuple[str, str], store: Store) -> None:
    check_kept(made(files, "deberta"), "DebertaV2ForMaskedLM")


def test_xlnet_predicts_in_an_order_of_its_own(files: tuple[str, str], store: Store) -> None:
    done = made(files, "xlnet")
    check_kept(done, "XLNetLMHeadModel")
    about = hub.read_config(done["classify"].path)
    assert about["architectures"] == ["XLNetForSequenceClassification"]
    assert (about["summary_type"], about["headrace_context"]) == ("first", 32)


def test_the_flops_of_the_generator_are_planned() -> None:
    sizes = {}
    for size in (0.25, 0.5, 1.0):
        recipe = load("electra", (f"pretrain.generator_size={size}",))
        sizes[size] = training_flops(recipe.model.config(512, 64), recipe.training)
    assert sizes[0.25] < sizes[0.5] < sizes[1.0]


def test_a_discriminator_learns_nothing_that_takes_an_lm_head(files: tuple[str, str]) -> None:
    with pytest.raises(BadInput, match=r"is masked, which takes an LM head; .* detector"):
        load("electra", ("pretrain.objective=masked", "pretrain.generator_size=null"))
    with pytest.raises(BadInput, match="generator_size: masked has none"):
        load("encoder", ("pretrain.generator_size=0.5",))
