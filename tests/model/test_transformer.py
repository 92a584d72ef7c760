"""Decoders and encoders of every kind: who changes what, packed documents, caches, norms, heads."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from model.blocks import Residual
from model.cache import Cache
from model.config import ExpertConfig, LatentConfig, ModelConfig
from model.shapes import from_depth
from model.transformer import Transformer

SMALL = from_depth(2, vocab_size=61, context=24, width=32, heads=4)
VARIANTS = {
    "default": SMALL,
    "grouped": replace(SMALL, kv_heads=2),
    "window": replace(SMALL, window=3),
    "gemma": replace(
        SMALL, kv_heads=2, norm_placement="sandwich", activation="geglu", window=3,
        window_layers=(True, False), attention_softcap=5.0, logit_softcap=3.0, scale_embedding=True,
    ),
    "gpt2": replace(SMALL, norm="layer", positions="learned", activation="gelu_tanh", bias="all"),
    "original": replace(
        SMALL, norm="layer", norm_placement="post", positions="sinusoidal", activation="relu"
    ),
    "qk-norm": replace(SMALL, qk_norm="head", bias="qkv", activation="relu2"),
    "falcon-7b": replace(SMALL, kv_heads=1, norm="layer", residual="parallel", activation="gelu"),
    "falcon-40b": replace(SMALL, kv_heads=2, norm="layer", residual="parallel_norms"),
    "alibi": replace(SMALL, kv_heads=2, positions="alibi", embedding_norm=True),
    "relative": replace(
        SMALL, positions="relative", relative_buckets=8, relative_distance=6, attention_scale=1.0,
        attention_softcap=2.0, logit_scale=0.5,
    ),
    "deepseek-v3": replace(
        SMALL, head_dim=12, latent=LatentConfig(kv_rank=16, query_rank=12, rope_dim=4, value_dim=8),
        experts=ExpertConfig(
            routed=8, active=2, width=16, shared=1, dense_layers=1, scoring="sigmoid", groups=4,
            active_groups=2, balance_bias=0.01,
        ),
    ),
}  # fmt: skip
BERT = replace(
    from_depth(2, vocab_size=61, context=24, width=32, heads=4, family="encoder"),
    tie_embeddings=True,
)
ENCODERS = {
    "bert": BERT,
    "roberta": replace(BERT, position_offset=2, segments=1, pooler=False),
    "modern": replace(SMALL, family="encoder", window=4, window_layers=(True, False), kv_heads=2),
    "alibi": replace(BERT, positions="alibi", norm_placement="pre"),
    "relative": replace(BERT, positions="relative", relative_buckets=8, relative_distance=6),
}
every_variant = pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS)
every_network = pytest.mark.parametrize(
    "config",
    [*VARIANTS.values(), *ENCODERS.values()],
    ids=[*VARIANTS, *(f"encoder-{name}" for name in ENCODERS)],
)


def build(config: ModelConfig, seed: int = 0) -> Transformer:
    torch.manual_seed(seed)
    network = Transformer(config).double().eval()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, mean=0.5 if parameter.ndim == 1 else 0.0, std=0.2)
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


@pytest.mark.parametrize("config", ENCODERS.values(), ids=ENCODERS)
def test_in_an_encoder_a_token_changes_what_is_before_it_and_after(config):
    network, inputs = build(config), ids(1, 12)
    changed = inputs.clone()
    changed[0, 7] = (changed[0, 7] + 1) % 61
    before, after = network(inputs), network(changed)
    assert not any(close(before[:, t], after[:, t]) for t in range(5, 10))


@every_network
def test_packed_documents_give_what_each_gives_alone(config):
    network, first, second = build(config), ids(1, 5), ids(1, 7)
    packed = torch.cat((first, second), 1)
    documents = torch.tensor([[1] * 5 + [2] * 7])
    positions = torch.tensor([[*range(5), *range(7)]])
    hidden = network(packed, documents, positions)
    assert close(hidden[:, :5], network(first))
    assert close(hidden[:, 5:], network(second))


@every_network
def test_padding_changes_nothing(config):
    network, text = build(config), ids(1, 5)
    padded = torch.cat((text, ids(1, 4)), 1)
    documents = torch.tensor([[1] * 5 + [0] * 4])
    assert close(network(padded, documents)[:, :5], network(text))


@every_variant
def test_within_a_prefix_later_tokens_count_and_behind_it_they_do_not(config):
    network, inputs = build(config), ids(1, 10)
    prefix = torch.arange(10)[None] < 4
    before = network(inputs, prefix_BT=prefix)
    for at, first_changed in ((3, 2), (6, 6)):
        changed = inputs.clone()
        changed[0, at] = (changed[0, at] + 1) % 61
        after = network(changed, prefix_BT=prefix)
        assert not close(before[:, first_changed], after[:, first_changed])
        assert first_changed < 4 or close(before[:, :first_changed], after[:, :first_changed])
    alone = network(inputs, prefix_BT=torch.zeros_like(prefix))
    assert close(alone, network(inputs))


@every_variant
def test_packed_prefixes_give_what_each_gives_alone(config):
    network, first, second = build(config), ids(1, 5), ids(1, 7)
    prefix = [torch.arange(5)[None] < 3, torch.arange(7)[None] < 4]
    hidden = network(
        torch.cat((first, second), 1),
        torch.tensor([[1] * 5 + [2] * 7]),
        torch.tensor([[*range(5), *range(7)]]),
        prefix_BT=torch.cat(prefix, 1),
    )
    assert close(hidden[:, :5], network(first, prefix_BT=prefix[0]))
    assert close(hidden[:, 5:], network(second, prefix_BT=prefix[1]))


@every_variant
def test_reading_through_a_cache_gives_the_same_states(config):
    network, inputs = build(config), ids(2, 12)
    whole, cache, parts = network(inputs), Cache(config), []
    for start, stop in ((0, 5), (5, 6), (6, 12)):
        positions = torch.arange(start, stop).expand(2, -1)
        documents = torch.ones_like(positions)
        parts.append(network(inputs[:, start:stop], documents, positions, cache))
    assert close(torch.cat(parts, 1), whole)


@every_variant
def test_rows_padded_on_the_left_read_on_alone(config):
    network, long, short = build(config), ids(1, 9), ids(1, 9)[:, 3:]
    cache = Cache(config, room=9)
    rows = torch.cat((long, F.pad(short, (3, 0))))
    positions = torch.stack((torch.arange(9), torch.arange(9) - 3))
    network(rows[:, :7], (positions[:, :7] >= 0).long(), positions[:, :7].clamp(min=0), cache)
    steps = [network(rows[:, t : t + 1], None, positions[:, t : t + 1], cache) for t in (7, 8)]
    last = torch.cat(steps, 1)
    assert close(last[:1], network(long)[:, -2:])
    assert close(last[1:], network(short)[:, -2:])


@every_variant
def test_a_cache_goes_on_with_selected_rows(config):
    network, inputs = build(config), ids(2, 6)
    cache = Cache(config)
    network(inputs[:, :5], cache=cache)
    cache.select(torch.tensor([1, 0, 1]))
    chosen = inputs[[1, 0, 1]]
    assert close(network(chosen[:, 5:], cache=cache), network(chosen)[:, 5:])


def test_documents_may_follow_each_other_through_a_cache():
    network, inputs = build(SMALL), ids(1, 8)
    documents, positions = torch.tensor([[1] * 5 + [2] * 3]), torch.tensor([[*range(5), *range(3)]])
    cache, parts = Cache(SMALL), []
    for start, stop in ((0, 5), (5, 7), (7, 8)):
        given = documents[:, start:stop] if start < 7 else None
        parts.append(network(inputs[:, start:stop], given, positions[:, start:stop], cache))
    assert close(torch.cat(parts, 1), network(inputs, documents, positions))


def test_segments_have_an_embedding_of_their_own():
    network, inputs = build(BERT), ids(1, 6)
    assert close(network(inputs), network(inputs, segments_BT=torch.zeros_like(inputs)))
    second = torch.tensor([[0, 0, 0, 1, 1, 1]])
    assert not close(network(inputs), network(inputs, segments_BT=second))


def test_learned_positions_begin_behind_the_offset():
    network, inputs = build(ENCODERS["roberta"]), ids(1, 6)
    assert network.position_embedding.weight.shape == (26, 32)
    before = network(inputs)
    network.position_embedding.weight.data[:2] += torch.randn(32)
    assert close(before, network(inputs))
    network.position_embedding.weight.data[2] += torch.randn(32)
    assert not close(before, network(inputs))


def test_a_masked_lm_head_is_a_dense_layer_a_norm_and_a_biased_tied_matrix():
    network, hidden = build(BERT), torch.randn(5, 32).double()
    head = network.head_transform
    z = F.gelu(hidden @ head.dense.weight.T + head.dense.bias)
    z = (z - z.mean(-1, keepdim=True)) / (z.var(-1, correction=0, keepdim=True) + 1e-12).sqrt()
    z = z * head.norm.weight + head.norm.bias
    expected = z @ network.embedding.weight.T + network.head_bias
    assert close(network.logits(hidden), expected)


def test_a_pooler_is_a_dense_layer_with_tanh_on_the_first_token():
    network, hidden = build(BERT), torch.randn(2, 3, 32).double()
    expected = (hidden[:, 0] @ network.pooler.weight.T + network.pooler.bias).tanh()
    assert close(network.pool(hidden), expected)
    assert close(build(ENCODERS["roberta"]).pool(hidden), hidden[:, 0])


def test_logits_are_scaled_then_capped():
    network = build(replace(SMALL, tie_embeddings=True, logit_scale=0.5, logit_softcap=3.0))
    hidden = torch.randn(5, 32).double()
    expected = 3 * torch.tanh(0.5 * hidden @ network.embedding.weight.T / 3)
    assert close(network.logits(hidden), expected)


@pytest.mark.parametrize("residual", ["parallel", "parallel_norms"])
def test_parallel_branches_see_the_same_input(residual):
    block = build(replace(SMALL, residual=residual, positions="learned")).blocks[0]
    network = build(replace(SMALL, residual=residual, positions="learned"))
    x = torch.randn(1, 6, 32).double()
    context = network.context(x, None, torch.arange(6)[None])
    normed = block.attention.norm(x)
    other = normed if residual == "parallel" else block.feedforward.norm(x)
    mixed = block.attention.inner(normed, context.sights[None])
    assert close(block(x, context), x + mixed + block.feedforward.inner(other))
    norms = [name for name, _ in block.named_parameters() if "norm" in name]
    assert len(norms) == {"parallel": 1, "parallel_norms": 2}[residual]


@pytest.mark.parametrize("placement", ["pre", "post", "sandwich"])
def test_residual_branches_are_normed_where_they_say(placement):
    double = torch.nn.Linear(32, 32, bias=False)
    double.weight.data = 2 * torch.eye(32)
    residual = Residual(replace(SMALL, norm_placement=placement, norm_epsilon=0.0), double)
    x = torch.full((1, 1, 32), 3.0)
    expected = {"pre": 3 + 2 * 1, "post": 1, "sandwich": 3 + 1}[placement]
    assert torch.allclose(residual(x), torch.full_like(x, expected))


@pytest.mark.parametrize(("depth", "width"), [(2, 32), (8, 256)])
def test_at_first_blocks_pass_tokens_through_and_all_next_tokens_are_about_as_likely(depth, width):
    torch.manual_seed(0)
    network = Transformer(from_depth(depth, vocab_size=256, context=64, width=width))
    inputs = torch.randint(0, 256, (4, 64))
    hidden = network(inputs)
    assert torch.equal(hidden, network.norm(network.embedding(inputs)))
    loss = F.cross_entropy(network.logits(hidden).mT, inputs.roll(-1, 1))
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
