"""Costs: equal to those of the built modules and of the operations they do."""

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from model.config import ExpertConfig, LatentConfig
from model.encoder_decoder import build
from model.flops import (
    activation_bytes,
    active_parameter_count,
    approximate_parameter_count,
    flops_per_token,
    held_parameter_count,
    non_embedding_parameter_count,
    parameter_count,
    trained_parameter_count,
    training_bytes,
)
from model.parts import parts
from model.presets import preset
from model.shapes import from_depth
from model.tensor_parallel import Team, divide

SMALL = from_depth(3, vocab_size=128, context=40, width=48, heads=4)
ENCODER = from_depth(3, vocab_size=128, context=40, width=48, heads=4, family="encoder")
BOTH = from_depth(3, vocab_size=128, context=40, width=48, heads=4, family="encoder_decoder")
EXPERTS = ExpertConfig(routed=8, active=2, width=16, shared=1, dense_layers=1)
LATENT = LatentConfig(kv_rank=12, query_rank=20, rope_dim=6, value_dim=10)
VARIANTS = {
    "default": SMALL,
    "tied": replace(SMALL, tie_embeddings=True),
    "grouped": replace(SMALL, kv_heads=2, head_dim=10),
    "post": replace(SMALL, norm_placement="post", norm="layer"),
    "sandwich": replace(SMALL, norm_placement="sandwich", qk_norm="head"),
    "after": replace(SMALL, norm_placement="after", qk_norm="all", kv_heads=2, rotary_dim=6),
    "attention-bias": replace(SMALL, bias="attention", experts=replace(EXPERTS, dense_layers=(1,))),
    "feed-forward-bias": replace(SMALL, bias="feedforward", norm="layer", norm_bias=False),
    "first-norm": replace(
        ENCODER, norm_placement="pre", skip_first_norm=True, activation="geglu_exact",
        norm_bias=False, bias="none", window=8, window_layers=(False, True, True),
    ),
    "learned": replace(SMALL, positions="learned", bias="all", activation="gelu"),
    "qkv-bias": replace(SMALL, kv_heads=1, bias="qkv", positions="sinusoidal"),
    "gated-bias": replace(SMALL, bias="all"),
    "parallel": replace(SMALL, residual="parallel", norm="layer"),
    "parallel-norms": replace(SMALL, residual="parallel_norms", positions="alibi"),
    "embedding-norm": replace(SMALL, embedding_norm=True, positions="relative"),
    "experts": replace(SMALL, experts=EXPERTS),
    "experts-plain": replace(SMALL, experts=replace(EXPERTS, shared=0), activation="relu"),
    "latent": replace(SMALL, latent=LATENT),
    "latent-full-queries": replace(SMALL, latent=replace(LATENT, query_rank=None)),
    "multi-token": replace(SMALL, multi_token=2),
    "multi-token-experts": replace(SMALL, multi_token=1, experts=EXPERTS, latent=LATENT),
    "encoder": ENCODER,
    "encoder-untied": replace(ENCODER, tie_embeddings=False, pooler=False),
    "encoder-decoder": BOTH,
    "encoder-decoder-biased": replace(
        BOTH, bias="all", qk_norm="head", encoder_depth=1, positions="learned", position_offset=2,
        norm_placement="sandwich", embedding_norm=True, segments=3,
    ),
}  # fmt: skip
every_variant = pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS)


@every_variant
def test_the_count_is_that_of_the_built_module(config):
    with torch.device("meta"):
        network = build(config)
    assert trained_parameter_count(config) == sum(p.numel() for p in network.parameters())


@pytest.mark.parametrize("name", ["encoder", "encoder-decoder-biased", "experts"])
def test_what_a_process_of_two_holds_is_counted(name):
    with torch.device("meta"):
        network = build(VARIANTS[name])
    divide(network, Team(rank=1, size=2))
    held = held_parameter_count(VARIANTS[name], 2)
    assert held == sum(p.numel() for p in network.parameters())
    assert held < trained_parameter_count(VARIANTS[name])


@every_variant
def test_totals_are_sums_over_the_parts(config):
    listed = list(parts(config, 40))
    assert sum(part.params for part in listed) == trained_parameter_count(config)
    assert sum(part.flops for part in listed) == flops_per_token(config)
    assert len({part.name for part in listed}) == len(listed)


def test_only_encoders_are_counted_without_their_head():
    head = 48 * 48 + 48 + 2 * 48 + 128 + 128 * 48
    assert trained_parameter_count(ENCODER) - parameter_count(ENCODER) == head
    assert trained_parameter_count(BOTH) == parameter_count(BOTH)


def test_gpt2_without_embeddings_is_12_d2_l_and_its_vectors():
    d, layers = 768, 12
    vectors = layers * (4 * d + 3 * d + d + 4 * d + d) + 2 * d
    assert non_embedding_parameter_count(preset("gpt2")) == 12 * d * d * layers + vectors


def test_the_rule_of_thumb_is_the_count_without_embeddings_and_vectors():
    """#H ~ 2 d L (2 d_V + d_FF); GPT-3's table gives 175 billion."""
    assert approximate_parameter_count(preset("gpt2")) == 12 * 768 * 768 * 12
    assert approximate_parameter_count(preset("gpt3-175b")) == 2 * 12288 * 96 * (2 * 12288 + 49152)
    exact = non_embedding_parameter_count(preset("gpt3-175b"))
    assert approximate_parameter_count(preset("gpt3-175b")) == pytest.approx(exact, rel=1e-3)


def test_flops_are_six_a_weight_and_twelve_an_attention_pair():
    d, layers, vocab = 768, 12, 50257
    weights = 12 * d * d * layers + vocab * d
    assert flops_per_token(preset("gpt2"), 1024) == 6 * weights + 12 * layers * d * 1024
    assert flops_per_token(preset("gpt2")) == flops_per_token(preset("gpt2"), 1024)


def test_a_window_caps_the_attention_of_its_layers_only():
    full = replace(preset("gemma-2-2b"), window=None)
    saved = flops_per_token(full, 8192) - flops_per_token(preset("gemma-2-2b"), 8192)
    assert saved == 12 * 8 * 256 * 13 * 4096
    assert flops_per_token(full, 4096) == flops_per_token(preset("gemma-2-2b"), 4096)


def test_experts_cost_what_is_active_of_them():
    config = VARIANTS["experts"]
    one, layers = 3 * 48 * 16, 2
    assert parameter_count(config) - active_parameter_count(config) == layers * 6 * one
    dense = replace(SMALL, ffn_width=3 * 16)
    router = 6 * layers * 48 * 8
    first = 6 * 3 * 48 * (SMALL.ffn_width - 3 * 16)
    assert flops_per_token(config) == flops_per_token(dense) + router + first


@pytest.mark.parametrize("name", ["default", "grouped", "latent", "parallel", "experts", "encoder"])
def test_the_forward_pass_does_the_counted_operations(name):
    config = VARIANTS[name]
    network = build(config)
    inputs = torch.zeros(1, 40, dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        network.logits(network(inputs))
    assert counter.get_total_flops() * 3 == flops_per_token(config, 40) * 40


def test_a_source_and_a_target_of_the_same_length_do_the_counted_operations():
    network, inputs = build(BOTH), torch.zeros(1, 40, dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        network.logits(network(inputs, inputs))
    assert counter.get_total_flops() * 3 == flops_per_token(BOTH, 40) * 40


def test_fp32_training_keeps_sixteen_bytes_a_parameter_and_an_encoders_head_too():
    count = trained_parameter_count(ENCODER)
    assert list(training_bytes(ENCODER).values()) == [4 * count, 4 * count, 8 * count]


@every_variant
def test_activations_grow_with_the_tokens_of_a_device_and_are_about_half_in_16_bit(config):
    one, two = (activation_bytes(config, tokens) for tokens in (256, 512))
    assert 0 < 2 * one == two
    assert one <= 2 * activation_bytes(config, 256, "bf16") < 2 * one  # norms stay fp32
