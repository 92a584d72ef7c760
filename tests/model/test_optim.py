"""Parameter groups: every parameter once, with the rate and decay of its kind."""

from dataclasses import replace

import pytest
import torch

from model.config import MATRIX_KINDS
from model.head_config import Head
from model.heads import Headed
from model.objectives.modules import CausalLM, TokenLM
from model.optim import parameter_groups, shares_of
from model.presets import preset
from model.shapes import from_depth
from model.transformer import Transformer


def groups(width=64, how=None, **changes):
    config = replace(from_depth(2, vocab_size=31, context=16, width=width), **changes)
    module = CausalLM(Transformer(config))
    return module, {g["name"]: g for g in parameter_groups(module, 0.01, 0.1, **(how or {}))}


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


def test_one_rate_is_everyones_and_all_but_gains_and_biases_decay():
    _, found = groups(4096, heads=32, positions="learned")
    assert {group["lr"] for group in found.values()} == {0.01}
    decays = {name: group["weight_decay"] for name, group in found.items()}
    assert decays == {**dict.fromkeys(MATRIX_KINDS, 0.1), "vectors": 0.0}


@pytest.mark.parametrize("by", ["base_width", "mup_base_width"])
def test_matrices_and_the_head_slow_down_with_the_width_where_asked(by):
    how, changes = ({by: 96}, {}) if by == "base_width" else ({}, {by: 96})
    for width in (48, 96, 192):
        rates = {name: g["lr"] for name, g in groups(width, how, **changes)[1].items()}
        slowed = pytest.approx(0.01 * 96 / width)
        assert rates == {"matrices": slowed, "head": slowed, "embeddings": 0.01, "vectors": 0.01}


def test_kinds_have_the_shares_of_the_rate_and_the_decay_that_they_are_given():
    scales = {"matrices": 0.5, "head": 2.0, "embeddings": 15, "positions": 0.5, "vectors": 3}
    how = {"scales": scales, "decayed": ("head", "vectors")}
    _, found = groups(positions="learned", how=how)
    assert {name: g["lr"] / 0.01 for name, g in found.items()} == pytest.approx(scales)
    assert [name for name, g in found.items() if g["weight_decay"]] == ["head", "vectors"]


def test_a_tied_embedding_learns_as_a_head():
    module, found = groups(tie_embeddings=True)
    assert names(module, found["head"]) == {"embedding.weight"}
    assert "embeddings" not in found


def test_an_embedding_keeps_the_share_that_it_had_as_a_head():
    scales = {"head": 2.5, "embeddings": 15}
    config = replace(preset("bert-base-uncased"), vocab_size=31, width=64, heads=1, kv_heads=1)
    network = Transformer(replace(config, depth=1, ffn_width=64))
    module = TokenLM(network)
    found = parameter_groups(module, 0.01, 0.1, scales=scales)
    assert {g["name"]: g["lr"] for g in found}["embeddings"] == 0.15, "those of segments"
    network.rate_shares = shares_of(network, found, 0.01)
    tuned = parameter_groups(Headed(network, Head("sequence", 3)), 0.002, 0.1)
    embedded = next(g for g in tuned if any(p is network.embedding.weight for p in g["params"]))
    assert embedded["name"] == "embeddings" and embedded["lr"] == pytest.approx(0.005)


def test_frozen_parameters_and_empty_groups_are_left_out():
    module, _ = groups()
    module.requires_grad_(False)
    module.network.norm.weight.requires_grad_(True)
    (group,) = parameter_groups(module, 0.01, 0.1)
    assert group["name"] == "vectors" and group["params"] == [module.network.norm.weight]


def test_a_classifier_is_grouped_with_its_network():
    network = Transformer(from_depth(2, vocab_size=31, context=16, width=64))
    model = Headed(network, Head("sequence", 3))
    found = {g["name"]: g for g in parameter_groups(model, 0.01, 0.1)}
    assert any(p is model.classifier.weight for p in found["head"]["params"])
    torch.optim.AdamW(parameter_groups(model, 0.01, 0.1))


def test_learned_positions_start_as_sinusoids_of_the_size_of_an_embedding():
    module, _ = groups(positions="learned")
    table = module.network.position_embedding.weight
    steps = torch.arange(16)
    assert torch.allclose(table[:, 0], 0.02 * 2**0.5 * steps.sin(), atol=1e-7)
    assert table.square().mean().sqrt().item() == pytest.approx(0.02, rel=1e-5)
