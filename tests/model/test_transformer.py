"""The network: masks, positions, norms, and every variant agreeing with a plain restatement."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.attention import Cache, attention_mask, rotate, rotation, scaled_attention
from model.config import ModelConfig, from_depth
from model.transformer import Residual, Transformer, make_norm, sinusoids

SMALL = from_depth(2, vocab_size=61, context=24, width=32, heads=4)
VARIANTS = {
    "default": SMALL,
    "grouped": replace(SMALL, kv_heads=2),
    "window": replace(SMALL, window=3),
    "gemma": replace(
        SMALL, kv_heads=2, norm_placement="sandwich", activation="geglu", window=3,
        window_layers="even", attention_softcap=5.0, logit_softcap=3.0, scale_embedding=True,
    ),
    "gpt2": replace(SMALL, norm="layer", positions="learned", activation="gelu_tanh", bias="all"),
    "original": replace(
        SMALL, norm="layer", norm_placement="post", positions="sinusoidal", activation="relu"
    ),
    "qk-norm": replace(SMALL, qk_norm=True, bias="qkv", activation="relu2"),
}  # fmt: skip
every_variant = pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS)


def build(config: ModelConfig, seed: int = 0) -> Transformer:
    torch.manual_seed(seed)
    network = Transformer(config).double().eval()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, mean=0.5 if parameter.ndim == 1 else 0.0, std=0.3)
    return network


def ids(*shape: int) -> torch.Tensor:
    return torch.randint(0, 61, shape, generator=torch.Generator().manual_seed(3))


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.allclose(a, b, atol=1e-5)


@every_variant
def test_a_token_changes_nothing_before_it(config):
    network, inputs = build(config), ids(1, 12)
    changed = inputs.clone()
    changed[0, 7] = (changed[0, 7] + 1) % 61
    before, after = network(inputs), network(changed)
    assert torch.equal(before[:, :7], after[:, :7])
    assert not close(before[:, 7], after[:, 7])


@every_variant
def test_packed_documents_give_what_each_gives_alone(config):
    network, first, second = build(config), ids(1, 5), ids(1, 7)
    packed = torch.cat((first, second), 1)
    documents = torch.tensor([[1] * 5 + [2] * 7])
    positions = torch.tensor([[*range(5), *range(7)]])
    hidden = network(packed, documents, positions)
    assert close(hidden[:, :5], network(first))
    assert close(hidden[:, 5:], network(second))


@every_variant
def test_reading_through_a_cache_gives_the_same_states(config):
    network, inputs = build(config), ids(2, 12)
    whole, cache, parts = network(inputs), Cache(config), []
    for start, stop in ((0, 5), (5, 6), (6, 12)):
        positions = torch.arange(start, stop).expand(2, -1)
        documents = torch.ones_like(positions)
        parts.append(network(inputs[:, start:stop], documents, positions, cache))
    assert close(torch.cat(parts, 1), whole)


def test_one_document_a_row_needs_no_mask():
    device = torch.device("cpu")
    assert attention_mask(6, torch.ones(2, 6), 6, None, device) is None
    assert attention_mask(6, torch.tensor([[1] * 6, [4] * 6]), 6, None, device) is None
    assert attention_mask(6, None, 6, 6, device) is None


def test_masks_are_causal_inside_documents_and_never_empty():
    documents = torch.tensor([[1, 1, 2, 2, 0, 0]])
    mask = attention_mask(6, documents, 6, None, torch.device("cpu"))
    assert mask.shape == (1, 1, 6, 6)
    assert mask[0, 0].int().tolist() == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [0, 0, 1, 0, 0, 0],
        [0, 0, 1, 1, 0, 0],
        [0, 0, 0, 0, 1, 0],
        [0, 0, 0, 0, 1, 1],
    ]


def test_a_window_of_two_sees_the_token_and_the_one_before():
    mask = attention_mask(4, None, 4, 2, torch.device("cpu"))
    assert mask.int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]


@given(
    shift=st.integers(0, 5000), gap=st.integers(-300, 300), seed=st.integers(0, 99),
    config=st.sampled_from([SMALL, replace(SMALL, rope_theta=500.0)]),
)  # fmt: skip
@settings(max_examples=50, deadline=None)
def test_rotated_products_depend_on_the_distance_alone(shift, gap, seed, config):
    q, k = torch.randn(2, 1, 1, 1, 8, generator=torch.Generator().manual_seed(seed)).double()

    def product(of_q: int, of_k: int) -> float:
        turns = [rotation(config, torch.tensor([[t]]), torch.float64) for t in (of_q, of_k)]
        return float((rotate(q, turns[0]) * rotate(k, turns[1])).sum())

    assert product(400, 400 + gap) == pytest.approx(
        product(400 + shift, 400 + gap + shift), abs=5e-2
    )
    assert product(gap + 300, gap + 300) == pytest.approx(float((q * k).sum()), abs=1e-5)


def test_sinusoids_are_the_published_ones():
    table = sinusoids(torch.tensor([[0, 3]]), 4)[0]
    assert table[0].tolist() == [0, 1, 0, 1]
    expected = torch.tensor([3.0, 3.0, 0.03, 0.03])
    assert torch.allclose(table[1][::2], expected[::2].sin())
    assert torch.allclose(table[1][1::2], expected[1::2].cos())


@pytest.mark.parametrize("placement", ["pre", "post", "sandwich"])
def test_residual_branches_are_normed_where_they_say(placement):
    double = torch.nn.Linear(32, 32, bias=False)
    double.weight.data = 2 * torch.eye(32)
    residual = Residual(replace(SMALL, norm_placement=placement, norm_epsilon=0.0), double)
    x = torch.full((1, 1, 32), 3.0)
    expected = {"pre": 3 + 2 * 1, "post": 1, "sandwich": 3 + 1}[placement]
    assert torch.allclose(residual(x), torch.full_like(x, expected))


def test_layer_norm_is_the_worked_example():
    norm = make_norm(replace(SMALL, width=4, norm="layer"))
    assert norm(torch.tensor([0.0, 2.0, 1.0, 1.0])).tolist() == pytest.approx(
        [-1.414, 1.414, 0, 0], abs=1e-3
    )


def test_attention_weights_divide_by_the_root_of_the_key_size():
    q = torch.tensor([[[[1.0, 0, 0]]]])
    k = torch.tensor([[[[0.0, 1, 0], [1, 0, 0], [0, 0, 1]]]])
    mask = torch.ones(1, 3, dtype=torch.bool)
    weights = scaled_attention(SMALL, q, k, torch.eye(3)[None, None], mask, training=False)
    assert weights[0, 0, 0].tolist() == pytest.approx([0.264, 0.471, 0.264], abs=1e-3)


@pytest.mark.parametrize(("depth", "width"), [(2, 32), (8, 256)])
def test_at_first_blocks_pass_tokens_through_and_all_next_tokens_are_about_as_likely(depth, width):
    torch.manual_seed(0)
    network = Transformer(from_depth(depth, vocab_size=256, context=64, width=width))
    inputs = torch.randint(0, 256, (4, 64))
    hidden = network(inputs)
    assert torch.equal(hidden, network.norm(network.embedding(inputs)))
    loss = torch.nn.functional.cross_entropy(network.logits(hidden).mT, inputs.roll(-1, 1))
    assert float(loss.detach()) == pytest.approx(math.log(256), abs=0.2)


def test_the_same_seed_builds_the_same_network():
    torch.manual_seed(5)
    a = Transformer(SMALL)
    torch.manual_seed(5)
    b = Transformer(SMALL)
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))


def test_dropout_acts_in_training_only():
    network, inputs = build(replace(SMALL, dropout=0.5)), ids(1, 12)
    assert torch.equal(network(inputs), network(inputs))
    network.train()
    assert not torch.equal(network(inputs), network(inputs))
