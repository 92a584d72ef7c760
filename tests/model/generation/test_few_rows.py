"""Products of few rows are those of the library, and decoding uses them without a trace."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from model.config import from_depth
from model.generation import Ending, few_rows, generate, team
from model.generation.few_rows import QuickLinear, quick_linear, with_quick_products
from model.transformer import Transformer


@pytest.mark.parametrize("outputs", [1, 3, 4, 37, 256])
@pytest.mark.parametrize("inputs", [1, 5, 64, 129])
@pytest.mark.parametrize("shape", [(1,), (1, 1), (3, 1), (8, 1), (2, 8), (17,)])
def test_the_product_is_that_of_the_library(shape, inputs, outputs):
    x, weight = torch.randn(*shape, inputs), torch.randn(outputs, inputs)
    bias = torch.randn(outputs)
    for b in (None, bias):
        assert torch.allclose(quick_linear(x, weight, b), F.linear(x, weight, b), atol=2e-5)


def test_rows_that_lie_apart_are_multiplied_as_they_are():
    x, weight = torch.randn(4, 6, 48)[:, -1], torch.randn(20, 48)
    assert not x.is_contiguous()
    assert torch.allclose(quick_linear(x, weight), F.linear(x, weight), atol=2e-5)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_threads_share_the_outputs(count, threads, monkeypatch):
    monkeypatch.setattr(few_rows, "ALONE", 100)
    threads(count)
    x, weight = torch.randn(5, 33), torch.randn(103, 33)
    assert torch.allclose(quick_linear(x, weight), F.linear(x, weight), atol=2e-5)


def test_many_rows_and_other_precisions_are_the_librarys():
    weight = torch.randn(20, 48)
    many = torch.randn(17, 48)
    assert torch.equal(quick_linear(many, weight), F.linear(many, weight))
    half, x = weight.bfloat16(), torch.randn(2, 48).bfloat16()
    assert torch.equal(quick_linear(x, half), F.linear(x, half))


@pytest.mark.parametrize("tied", [True, False])
def test_the_quick_network_has_the_same_weights_and_leaves_the_other_alone(tied):
    config = from_depth(2, vocab_size=50, context=32, width=32, heads=2)
    network = Transformer(replace(config, tie_embeddings=tied)).train()
    quick = with_quick_products(network)
    pairs = zip(network.parameters(), quick.parameters(), strict=True)
    assert all(one is other for one, other in pairs)
    assert sum(type(module) is QuickLinear for module in quick.modules()) == 9 - tied
    assert not any(isinstance(module, QuickLinear) for module in network.modules())
    assert network.multiply is F.linear
    with torch.no_grad():
        tokens = torch.tensor([[1, 2, 3]])
        for parameter in network.parameters():
            parameter.add_(0.01)
        expected, got = (n.eval().logits(n(tokens)) for n in (network, quick))
    assert torch.allclose(got, expected, atol=1e-5)


def test_layers_that_do_not_fit_stay():
    network = Transformer(from_depth(1, vocab_size=50, context=32, width=32, heads=2)).bfloat16()
    quick = with_quick_products(network)
    assert not any(isinstance(module, QuickLinear) for module in quick.modules())
    assert quick.multiply is F.linear


@pytest.mark.parametrize(
    ("module", "name", "found"),
    [(team, "find_spec", None), (team.ctypes, "CDLL", object())],
    ids=["numba", "openmp"],
)
def test_the_model_does_without(module, name, found, monkeypatch):
    monkeypatch.setattr(module, name, lambda _: found)
    network = Transformer(from_depth(1, vocab_size=50, context=32, width=32, heads=2))
    assert with_quick_products(network) is network


def test_a_network_learns_after_it_has_written():
    network = Transformer(from_depth(1, vocab_size=50, context=32, width=32, heads=2))
    generate(network, [[1, 2]], Ending(4))
    network.train().logits(network(torch.tensor([[1, 2, 3]]))).sum().backward()
    assert all(p.grad is not None for p in network.parameters())
    assert all(type(m) is nn.Linear for m in network.modules() if isinstance(m, nn.Linear))
