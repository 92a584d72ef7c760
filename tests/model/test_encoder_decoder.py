"""Encoder-decoders: T5's, BART's and the original; packed and padded sources; caches."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from model.cache import Cache
from model.config import ModelConfig
from model.encoder_decoder import EncoderDecoder, build
from model.shapes import from_depth
from model.stack import Memory
from model.transformer import Transformer

T5 = replace(
    from_depth(2, vocab_size=61, context=24, width=32, heads=4, family="encoder_decoder"),
    relative_buckets=8, relative_distance=6, attention_scale=0.5,
)  # fmt: skip
BART = replace(
    T5, norm="layer", norm_placement="post", positions="learned", position_offset=2, bias="all",
    activation="gelu", embedding_norm=True, attention_scale=None, tie_embeddings=True,
)  # fmt: skip
ORIGINAL = replace(
    BART, positions="sinusoidal", scale_embedding=True, embedding_norm=False, activation="relu",
    encoder_depth=3,
)  # fmt: skip
MODERN = replace(T5, positions="rope", activation="swiglu", kv_heads=2, attention_scale=None)
VARIANTS = {"t5": T5, "bart": BART, "original": ORIGINAL, "modern": MODERN}
every_variant = pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS)


def made(config: ModelConfig) -> EncoderDecoder:
    torch.manual_seed(0)
    network = build(config).double().eval()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, mean=0.5 if parameter.ndim == 1 else 0.0, std=0.2)
    return network


def ids(*shape: int, seed: int = 3) -> torch.Tensor:
    return torch.randint(0, 61, shape, generator=torch.Generator().manual_seed(seed))


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.allclose(a, b, atol=1e-5)


def test_build_makes_the_network_of_the_family():
    assert isinstance(build(T5), EncoderDecoder)
    for family in ("encoder", "decoder"):
        config = from_depth(1, vocab_size=61, context=24, family=family)
        assert isinstance(build(config), Transformer)


@every_variant
def test_every_target_token_sees_all_of_the_source_and_the_target_before_it(config):
    network, source, target = made(config), ids(1, 7), ids(1, 6, seed=4)
    before = network(source, target)
    changed = source.clone()
    changed[0, 6] = (changed[0, 6] + 1) % 61
    assert not any(close(before[:, t], network(changed, target)[:, t]) for t in range(6))
    changed = target.clone()
    changed[0, 3] = (changed[0, 3] + 1) % 61
    after = network(source, changed)
    assert close(before[:, :3], after[:, :3])
    assert not close(before[:, 3], after[:, 3])


@every_variant
def test_decoding_through_a_cache_gives_the_same_states(config):
    network, source, target = made(config), ids(2, 7), ids(2, 8, seed=4)
    cache, memory = Cache(config), network.encode(source)
    parts = [
        network.decode(target[:, start:stop], memory, cache=cache)
        for start, stop in ((0, 1), (1, 2), (2, 6), (6, 8))
    ]
    assert close(torch.cat(parts, 1), network(source, target))


@every_variant
def test_a_padded_source_gives_what_it_gives_alone(config):
    network, source, target = made(config), ids(1, 5), ids(1, 6, seed=4)
    padded, documents = F.pad(source, (0, 3)), torch.tensor([[1] * 5 + [0] * 3])
    alone = network(source, target)
    assert close(network(padded, target, documents), alone)
    # Padding of the target, also where the source of its document is the padding.
    both = network(padded, F.pad(target, (0, 2)), documents, torch.tensor([[1] * 6 + [0] * 2]))
    assert close(both[:, :6], alone)
    assert both.isfinite().all()


@every_variant
def test_packed_pairs_give_what_each_gives_alone(config):
    network = made(config)
    sources, targets = (ids(1, 5), ids(1, 7)), (ids(1, 6, seed=4), ids(1, 4, seed=5))
    hidden = network(
        torch.cat(sources, 1),
        torch.cat(targets, 1),
        torch.tensor([[1] * 5 + [2] * 7]),
        torch.tensor([[1] * 6 + [2] * 4]),
        torch.tensor([[*range(5), *range(7)]]),
        torch.tensor([[*range(6), *range(4)]]),
    )
    assert close(hidden[:, :6], network(sources[0], targets[0]))
    assert close(hidden[:, 6:], network(sources[1], targets[1]))


@every_variant
def test_rows_are_selected_with_their_sources(config):
    network, source, target = made(config), ids(2, 7), ids(2, 5, seed=4)
    documents = torch.tensor([[1] * 7, [1] * 4 + [0] * 3])
    cache, memory = Cache(config), network.encode(source, documents)
    network.decode(target[:, :4], memory, cache=cache)
    rows = torch.tensor([1, 1, 0])
    cache.select(rows)
    memory = memory.select(rows)
    found = network.decode(target[rows][:, 4:], memory, cache=cache)
    expected = network(source[rows], target[rows], documents[rows])
    assert close(found, expected[:, 4:])


def test_the_memory_is_the_encoders_states():
    network, source = made(T5), ids(1, 5)
    memory = network.encode(source)
    assert isinstance(memory, Memory)
    assert memory.states_BSD.shape == (1, 5, 32)
    assert memory.documents_BS is None


def test_sides_may_differ_in_depth_and_share_one_embedding():
    network = made(ORIGINAL)
    assert (len(network.encoder.blocks), len(network.decoder.blocks)) == (3, 2)
    embeddings = [m for m in network.modules() if isinstance(m, torch.nn.Embedding)]
    assert [e.num_embeddings for e in embeddings] == [61]
    assert network.head_weight is network.embedding.weight


def test_at_first_scores_vary_as_much_unscaled_as_scaled():
    torch.manual_seed(0)
    spreads = []
    for scale in (None, 1.0):
        wide = replace(T5, width=256, heads=4, kv_heads=4, head_dim=64, attention_scale=scale)
        attention = build(wide).decoder.blocks[0].attention.inner
        q, k, _ = attention.qkv(torch.randn(1, 500, 256)).split(256, -1)
        scores = (q[..., :64] @ k[..., :64].mT) * (scale or 1 / 8)
        spreads.append(float(scores.std().detach()))
    assert spreads == pytest.approx([1, 1], abs=0.1)
