"""Heads read the tokens that they are to; Transformers loads them with their network."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from model import hub
from model.config import ModelConfig
from model.head_config import Head
from model.heads import Headed, last_tokens
from model.shapes import from_depth
from model.transformer import Transformer

SMALL = from_depth(2, vocab_size=31, context=16, width=32, heads=2)
ENCODER = from_depth(2, vocab_size=31, context=16, width=32, heads=2, family="encoder")
SIZES = {"width": 24, "depth": 2, "heads": 3, "kv_heads": 1, "head_dim": 8, "ffn_width": 40}
LLAMA = ModelConfig(vocab_size=31, context=16, tie_embeddings=False, **SIZES)
SHAPES = {
    "llama": LLAMA,
    "llama-tied": replace(LLAMA, tie_embeddings=True),
    "qwen2": replace(LLAMA, bias="qkv"),
    "gpt2": replace(
        LLAMA, kv_heads=3, norm="layer", positions="learned", activation="gelu_tanh", bias="all",
        tie_embeddings=True, ffn_width=96,
    ),
    "bert": ENCODER,
    "roberta": replace(ENCODER, position_offset=2, segments=1, pooler=False),
}  # fmt: skip
HEADS = {
    "sequence": Head("sequence", 3, "last"),
    "several": Head("sequence", 3, "last", "multi_label_classification"),
    "token": Head("token", 4),
    "span": Head("span", 2),
}
AUTO = {
    "sequence": "AutoModelForSequenceClassification",
    "token": "AutoModelForTokenClassification",
    "span": "AutoModelForQuestionAnswering",
}


def made(shape: ModelConfig, head: Head) -> Headed:
    """Such a network whose head is not at zero."""
    torch.manual_seed(0)
    module = Headed(Transformer(shape), head).eval()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return module


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.randint(3, 31, (2, 9)), torch.tensor([[1] * 9, [1] * 6 + [0] * 3])


def test_the_last_token_is_the_last_that_is_not_padding():
    documents = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1], [0, 0, 1, 1]])
    assert last_tokens(documents).tolist() == [2, 0, 3, 3]


@pytest.mark.parametrize("pooling", ["first", "mean", "last"])
def test_padding_changes_no_score(pooling: str):
    model = made(ENCODER, Head("sequence", 3, pooling))
    inputs, documents = batch()
    alone = model.scores(inputs[1:, :6])
    assert torch.allclose(model.scores(inputs, documents)[1:], alone, atol=1e-5)


def test_the_mean_is_of_the_text_alone():
    model = made(SMALL, Head("sequence", 3, "mean"))
    inputs, documents = batch()
    hidden = model.network(inputs[1:, :6]).mean(1)
    assert torch.allclose(model.scores(inputs, documents)[1:], model.classifier(hidden), atol=1e-5)


def test_the_first_loss_is_that_of_equally_likely_classes():
    zeros = torch.zeros(2, 4, dtype=torch.long)
    model = Headed(Transformer(SMALL), Head("sequence", 7))
    assert model(zeros, labels=torch.tensor([0, 6])).item() == pytest.approx(math.log(7))
    several = Headed(Transformer(SMALL), HEADS["several"])
    assert several(zeros, labels=torch.ones(2, 3)).item() == pytest.approx(math.log(2))
    spans = Headed(Transformer(SMALL), HEADS["span"])
    padded = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 0]])
    loss = spans(zeros, padded, labels=torch.tensor([[0, 2], [1, 1]]))
    assert loss.item() == pytest.approx(math.log(3))
    tokens = Headed(Transformer(SMALL), HEADS["token"])
    labels = torch.tensor([[0, -100, 3, -100], [-100] * 4])
    assert tokens(zeros, labels=labels).item() == pytest.approx(math.log(4))


def test_it_learns_which_token_comes_last():
    torch.manual_seed(0)
    model = Headed(Transformer(SMALL), Head("sequence", 2))
    inputs = torch.randint(2, 31, (32, 8))
    labels = torch.arange(32) % 2
    inputs[:, -1] = labels
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(20):
        loss = model(inputs, labels=labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert (model.scores(inputs).argmax(1) == labels).all()


@pytest.mark.parametrize("head", ["sequence", "token", "span"])
@pytest.mark.parametrize("shape", SHAPES)
def test_transformers_loads_the_network_with_its_head(tmp_path: Path, shape: str, head: str):
    """And gives the same logits; so do we, from the same folder."""
    import transformers

    pooling = "first" if SHAPES[shape].family == "encoder" else "last"
    module = made(SHAPES[shape], replace(HEADS[head], pooling=pooling))
    labels = {str(n): f"label {n}" for n in range(module.head.outputs)}
    hub.save(tmp_path, module, {"id2label": labels, "pad_token_id": 1})
    auto = getattr(transformers, AUTO[module.head.kind])
    theirs, info = auto.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"] and not info["mismatched_keys"], info
    assert not info["unexpected_keys"], info
    inputs, documents = batch()
    inputs[documents == 0] = 1
    with torch.no_grad():
        ours = module.scores(inputs, documents)
        found = theirs.eval()(inputs, attention_mask=documents)
        again = hub.load_headed(tmp_path).eval().scores(inputs, documents)
    if module.head.kind == "span":
        logits = torch.stack((found.start_logits, found.end_logits), -1)
    else:
        logits = found.logits
    real = documents.bool() if ours.ndim == 3 else slice(None)
    assert torch.allclose(ours[real], logits[real], atol=1e-5)
    assert torch.equal(ours, again)


@pytest.mark.parametrize("shape", ["llama", "bert"])
def test_a_published_folder_with_a_head_is_read(tmp_path: Path, shape: str):
    """As Transformers writes it, which says nothing of ours."""
    import transformers

    module = made(SHAPES[shape], Head("sequence", 3, "last" if shape == "llama" else "first"))
    hub.save(tmp_path / "ours", module, {"pad_token_id": 1})
    auto = transformers.AutoModelForSequenceClassification
    theirs = auto.from_pretrained(tmp_path / "ours", num_labels=3)
    theirs.config.__dict__.pop("headrace_head")
    theirs.config.tie_word_embeddings = False
    theirs.save_pretrained(tmp_path / "theirs")
    inputs, documents = batch()
    again = hub.load_headed(tmp_path / "theirs").eval()
    assert torch.equal(module.scores(inputs, documents), again.scores(inputs, documents))


def test_a_head_transformers_has_no_class_for_lies_beside_its_network(tmp_path: Path):
    module = made(SMALL, Head("sequence", 3, "mean"))
    hub.save(tmp_path, module)
    inputs, documents = batch()
    assert torch.equal(
        hub.load_headed(tmp_path).eval().scores(inputs, documents), module.scores(inputs, documents)
    )
    assert hub.read_config(tmp_path)["architectures"] == ["LlamaForCausalLM"]
    with pytest.raises(ValueError, match="has no head of a task"):
        hub.save(tmp_path / "plain", Transformer(SMALL))
        hub.load_headed(tmp_path / "plain")
