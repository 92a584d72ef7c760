"""Counts: equal to the built modules, equal to the published figures, and without PyTorch."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from model.config import from_depth
from model.flops import (
    flops_per_token,
    non_embedding_parameter_count,
    parameter_count,
    training_bytes,
)
from model.presets import PRESETS, preset
from model.transformer import Transformer

PUBLISHED = {
    "gpt2": 124439808, "gpt2-medium": 354823168, "gpt2-large": 774030080, "gpt2-xl": 1557611200,
    "llama-2-7b": 6738415616, "llama-2-13b": 13015864320, "llama-2-70b": 68976648192,
    "llama-3.1-8b": 8030261248, "llama-3.1-70b": 70553706496, "llama-3.1-405b": 405853388800,
    "mistral-7b": 7241732096, "qwen2.5-0.5b": 494032768, "qwen2.5-7b": 7615616512,
    "qwen2.5-72b": 72706203648,
    "gemma-2-2b": 2614341888, "gemma-2-9b": 9241705984, "gemma-2-27b": 27227128320,
}  # fmt: skip
SMALL = from_depth(3, vocab_size=101, context=40, width=48, heads=4)
VARIANTS = {
    "default": SMALL,
    "tied": replace(SMALL, tie_embeddings=True),
    "grouped": replace(SMALL, kv_heads=2, head_dim=10),
    "post": replace(SMALL, norm_placement="post", norm="layer"),
    "sandwich": replace(SMALL, norm_placement="sandwich", qk_norm=True),
    "learned": replace(SMALL, positions="learned", bias="all", activation="gelu"),
    "qkv-bias": replace(SMALL, kv_heads=1, bias="qkv", positions="sinusoidal"),
    "gated-bias": replace(SMALL, bias="all"),
}


def built(config):
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in Transformer(config).parameters())


@pytest.mark.parametrize("name", PUBLISHED)
def test_presets_have_the_published_parameter_counts(name):
    assert parameter_count(preset(name)) == PUBLISHED[name]


def test_gpt3_has_the_published_count_to_two_percent():
    assert parameter_count(preset("gpt-3")) == pytest.approx(175e9, rel=0.02)


@pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS)
def test_the_count_is_that_of_the_built_module(config):
    assert parameter_count(config) == built(config)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_build_with_their_count(name):
    shallow = replace(preset(name), depth=2)
    assert parameter_count(shallow) == built(shallow)


def test_an_unknown_preset_names_the_known_ones():
    with pytest.raises(ValueError, match=r"model\.preset is 'gpt5'; it must be one of gpt2, "):
        preset("gpt5")


def test_gpt2_without_embeddings_is_12_d2_l_and_its_vectors():
    d, layers = 768, 12
    vectors = layers * (4 * d + 3 * d + d + 4 * d + d) + 2 * d
    assert non_embedding_parameter_count(preset("gpt2")) == 12 * d * d * layers + vectors


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


def test_the_forward_pass_does_the_counted_operations():
    config = replace(SMALL, vocab_size=128)
    network = Transformer(config)
    inputs = torch.zeros(1, 40, dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        network.logits(network(inputs))
    assert counter.get_total_flops() * 3 == flops_per_token(config, 40) * 40


@pytest.mark.parametrize(
    ("stage", "bytes_a_parameter"), [(0, 16), (1, 4 + 12 / 64), (2, 2 + 14 / 64), (3, 16 / 64)]
)
def test_bytes_of_mixed_precision_training_are_those_of_the_zero_paper(stage, bytes_a_parameter):
    memory = training_bytes(preset("gpt2-xl"), zero_stage=stage, workers=64, precision="bf16")
    assert memory.total == pytest.approx(parameter_count(preset("gpt2-xl")) * bytes_a_parameter)
    assert memory.activations == 0


def test_fp32_training_keeps_sixteen_bytes_a_parameter_too():
    memory = training_bytes(SMALL)
    assert (memory.weights, memory.gradients, memory.optimizer) == tuple(
        parameter_count(SMALL) * size for size in (4, 4, 8)
    )


def test_activations_grow_with_the_tokens_of_a_device_and_halve_in_16_bit():
    one, two = (training_bytes(SMALL, tokens=tokens).activations for tokens in (256, 512))
    assert 0 < 2 * one == two
    assert training_bytes(SMALL, tokens=256, precision="bf16").activations * 2 == one


def test_counting_does_not_import_torch():
    code = "import sys, model.presets, model.flops, model.config; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
