"""Parameter groups: every parameter once, with the rate and decay of its kind."""

from dataclasses import replace

import pytest
import torch

from model.config import from_depth
from model.heads import SequenceClassifier
from model.objectives.modules import CausalLM
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
    module, found = groups(positions="learned", bias="all")
    assert names(module, found["embeddings"]) == {"embedding.weight"}
    assert names(module, found["positions"]) == {"position_embedding.weight"}
    assert names(module, found["head"]) == {"head.weight"}
    assert {name.split(".")[-2] for name in names(module, found["matrices"])} == {
        "qkv", "out", "up", "down",
    }  # fmt: skip
    assert all(p.ndim == 2 for p in found["matrices"]["params"])
    assert all(p.ndim == 1 for p in found["vectors"]["params"])
    members = [id(p) for group in found.values() for p in group["params"]]
    assert sorted(members) == sorted(id(p) for p in module.parameters())


def test_matrices_and_the_head_slow_down_with_width_and_matrices_decay():
    (_, narrow), (_, wide) = groups(48), groups(192)
    for name in ("matrices", "head"):
        assert narrow[name]["lr"] == pytest.approx(4 * wide[name]["lr"])
    assert wide["matrices"]["lr"] == pytest.approx(0.01 / 2)
    for name in ("embeddings", "vectors"):
        assert narrow[name]["lr"] == wide[name]["lr"]
    decays = {name: group["weight_decay"] for name, group in wide.items()}
    assert decays == {"matrices": 0.1, "head": 0.0, "embeddings": 0.0, "vectors": 0.0}


def test_a_tied_embedding_learns_as_a_head():
    module, found = groups(tie_embeddings=True)
    assert names(module, found["head"]) == {"embedding.weight"}
    assert "embeddings" not in found


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
    assert any(p is model.classifier.weight for p in found["head"]["params"])
    torch.optim.AdamW(parameter_groups(model, 0.01, 0.1))


def test_learned_positions_start_as_sinusoids_of_the_size_of_an_embedding():
    module, _ = groups(positions="learned")
    table = module.network.position_embedding.weight
    steps = torch.arange(16)
    assert torch.allclose(table[:, 0], 0.02 * 2**0.5 * steps.sin(), atol=1e-7)
    assert table.square().mean().sqrt().item() == pytest.approx(0.02, rel=1e-5)
