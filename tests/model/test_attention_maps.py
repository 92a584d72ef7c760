"""Attention drawn: the weights are those that values are mixed with, of every kind of network."""

from dataclasses import replace

import pytest
import torch

from model.attention_maps import attention_maps
from model.encoder_decoder import build
from model.positions import sinusoids
from model.presets import preset
from model.shapes import resized

INPUTS = torch.tensor([[5, 9, 4, 7, 7]])


def small(name: str):
    shape = resized(preset(name), depth=2, width=16, heads=2)
    network = build(replace(shape, vocab_size=11, context=16)).eval()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return network


@pytest.mark.parametrize(
    "name", ["gpt2", "gemma-2-2b", "bert-base-uncased", "deberta-v3-base", "xlnet-base-cased"]
)
def test_weights_of_every_head_sum_to_one_and_see_what_the_network_sees(name: str) -> None:
    network = small(name)
    maps = attention_maps(network, lambda: network(INPUTS))
    assert [found for found, _ in maps] == [f"blocks.{n}.attention.inner" for n in (0, 1)]
    for _, weights_BHTS in maps:
        assert weights_BHTS.shape[2:] == (5, 5)
        assert torch.allclose(weights_BHTS.sum(-1), torch.ones(1, weights_BHTS.shape[1], 5))
        ahead = weights_BHTS.triu(1).abs().max()
        assert (ahead == 0) == (network.config.family == "decoder")
    assert torch.equal(network(INPUTS), network(INPUTS))


def test_a_layer_that_is_passed_twice_is_there_twice() -> None:
    network = small("albert-base-v2")
    assert len(attention_maps(network, lambda: network(INPUTS))) == 2


def test_cross_attention_looks_from_the_target_at_the_source() -> None:
    network = small("transformer-base")
    maps = attention_maps(network, lambda: network(INPUTS, INPUTS[:, :3]))
    shapes = {name: tuple(weights.shape[2:]) for name, weights in maps}
    assert shapes["decoder.blocks.1.cross.inner"] == (3, 5)
    assert shapes["decoder.blocks.0.attention.inner"] == (3, 3)
    assert len(maps) == 6


def test_weights_are_those_of_the_formula() -> None:
    network = small("gpt2")
    block = network.blocks[0].attention
    x = network._place(network.embed(INPUTS), torch.arange(5)[None], None)
    heads = block.inner.qkv(block.norm(x)).unflatten(-1, (-1, 8)).transpose(1, 2)
    q, k, _ = heads.chunk(3, 1)
    scores = (q @ k.mT / 8**0.5).masked_fill(torch.ones(5, 5).triu(1) > 0, -torch.inf)
    (_, found), _ = attention_maps(network, lambda: network(INPUTS))
    assert torch.allclose(found, scores.softmax(-1), atol=1e-6)


def test_the_worked_example_of_three_words() -> None:
    """Dragons breathe fire: one-hot embeddings, no projections, scores over the root of 3."""
    weights = torch.tensor([0.0, 1 / 3**0.5, 0.0]).softmax(0)
    assert weights.tolist() == pytest.approx([0.264, 0.471, 0.264], abs=5e-4)
    undivided = torch.tensor([0.0, 1.0, 0.0]).softmax(0)
    assert undivided.tolist() == pytest.approx([0.2119, 0.5762, 0.2119], abs=1e-4)


def test_the_worked_example_of_a_layer_norm() -> None:
    added = torch.tensor([0.5, 0.6, 0.4, 0.3]) + torch.tensor([0.1, 0.2, 0.3, 0.4])
    found = torch.nn.functional.layer_norm(added, (4,), eps=0.0)
    assert found.tolist() == pytest.approx([-(2**0.5), 2**0.5, 0, 0], abs=1e-4)


def test_a_shift_of_a_sinusoid_is_a_rotation() -> None:
    at, later = sinusoids(torch.tensor([[3, 10]]), 8)[0].view(2, 4, 2)
    angle = 7 * 10_000 ** (-torch.arange(0, 8, 2) / 8)
    turned = torch.stack(
        (
            at[:, 0] * angle.cos() + at[:, 1] * angle.sin(),
            at[:, 1] * angle.cos() - at[:, 0] * angle.sin(),
        ),
        -1,
    )
    assert torch.allclose(turned, later, atol=1e-5)
