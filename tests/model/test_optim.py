"""Parameter groups: every parameter once, with the rate and decay of its kind."""

from dataclasses import replace

import pytest
import torch

from model.config import from_depth
from model.heads import SequenceClassifier
from model.objectives import CausalLM
from model.optim import parameter_groups
from model.transformer import Transformer


def groups(width=64, rate=0.01, **changes):
    config = replace(from_depth(2, vocab_size=31, context=16, width=width), **changes)
    module = CausalLM(Transformer(config))
    return module, {g["name"]: g for g in parameter_groups(module, rate, 0.1)}


def names(module, group):
    of = {id(p): name.removeprefix("network.") for name, p in module.named_parameters()}
    return {of[id(p)] for p in group["params"]}


def test_every_parameter_is_in_the_group_of_its_kind():
    module, found = groups(tie_embeddings=False, positions="learned", bias="all")
    assert names(module, found["embeddings"]) == {"embedding.weight", "position_embedding.weight"}
    assert "head.weight" in names(module, found["matrices"])
    assert all(p.ndim == 2 for p in found["matrices"]["params"])
    assert all(p.ndim == 1 for p in found["vectors"]["params"])
    members = [id(p) for group in found.values() for p in group["params"]]
    assert sorted(members) == sorted(id(p) for p in module.parameters())


def test_matrices_alone_slow_down_with_width_and_decay():
    (_, narrow), (_, wide) = groups(64, tie_embeddings=False), groups(256, tie_embeddings=False)
    assert narrow["matrices"]["lr"] == pytest.approx(4 * wide["matrices"]["lr"])
    assert wide["matrices"]["lr"] == pytest.approx(0.01 / 2)
    for name in ("embeddings", "vectors"):
        assert narrow[name]["lr"] == wide[name]["lr"]
    decays = {name: group["weight_decay"] for name, group in wide.items()}
    assert decays == {"matrices": 0.1, "embeddings": 0.0, "vectors": 0.0}


def test_a_tied_embedding_slows_down_too():
    (_, narrow), (_, wide) = groups(64, tie_embeddings=True), groups(256, tie_embeddings=True)
    assert narrow["embeddings"]["lr"] == pytest.approx(4 * wide["embeddings"]["lr"])


def test_frozen_parameters_and_empty_groups_are_left_out():
    module, _ = groups()
    module.requires_grad_(False)
    module.network.norm.weight.requires_grad_(True)
    (group,) = parameter_groups(module, 0.01, 0.1)
    assert group["name"] == "vectors" and group["params"] == [module.network.norm.weight]


def test_a_classifier_is_grouped_with_its_network():
    network = Transformer(from_depth(2, vocab_size=31, context=16, width=64))
    model = SequenceClassifier(network, 3)
    found = {g["name"]: g for g in parameter_groups(model, 0.01, 0.1)}
    assert any(p is model.classifier.weight for p in found["matrices"]["params"])
    torch.optim.AdamW(parameter_groups(model, 0.01, 0.1))
