"""The dial, and refusals that name the field."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.config import ExpertConfig, LatentConfig, ModelConfig, Rope, RopeScaling
from model.presets import PRESETS, preset
from model.shapes import from_depth, resized


def shape(config: ModelConfig) -> tuple[int, int, int, int, int]:
    return config.width, config.heads, config.kv_heads, config.head_dim, config.ffn_width


@pytest.mark.parametrize(
    ("depth", "expected"),
    [
        (1, (32, 2, 2, 16, 96)),
        (4, (128, 4, 4, 32, 352)),
        (8, (512, 8, 8, 64, 1376)),
        (32, (4096, 32, 32, 128, 10928)),
        (40, (5120, 40, 40, 128, 13664)),
    ],
)
def test_one_number_gives_the_whole_shape(depth, expected):
    assert shape(from_depth(depth, vocab_size=512, context=64)) == expected


def test_width_and_heads_override_the_dial():
    config = from_depth(4, vocab_size=512, context=64, width=96, heads=6, kv_heads=2)
    assert shape(config) == (96, 6, 2, 16, 256)
    assert shape(from_depth(3, vocab_size=9, context=8, width=24)) == (24, 3, 3, 8, 64)


@given(depth=st.integers(1, 128))
def test_every_depth_can_be_built(depth):
    config = from_depth(depth, vocab_size=512, context=64)
    assert config.heads * config.head_dim == config.width
    assert 16 <= config.head_dim <= 128
    assert config.width >= from_depth(max(1, depth - 1), vocab_size=512, context=64).width


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": 5}, r"model\.heads is 5; it must be a divisor of the width 128"),
        ({"kv_heads": 3}, r"model\.kv_heads is 3; it must be a divisor of 4 heads"),
        ({"width": 33, "heads": 11}, r"model\.head_dim is 3; it must be even"),
        ({"family": "bert"}, "model.family is 'bert'; it must be decoder | encoder | encoder_deco"),
        ({"context": 0}, r"model\.context is 0; it must be at least 1"),
    ],
)
def test_a_shape_that_cannot_be_built_is_refused_by_field(change, message):
    with pytest.raises(ValueError, match=message):
        from_depth(4, **{"vocab_size": 512, "context": 64, **change})


def test_a_published_shape_takes_another_size():
    for own in PRESETS.values():
        assert resized(own) == own
    gpt_2 = resized(preset("gpt2"), depth=4, width=224, heads=7)
    assert shape(gpt_2) == (224, 7, 7, 32, 896)
    assert (gpt_2.depth, gpt_2.norm, gpt_2.positions) == (4, "layer", "learned")
    assert shape(resized(preset("llama-3.1-8b"), depth=2)) == (4096, 32, 8, 128, 14_336)
    assert shape(resized(preset("mistral-7b"), width=512)) == (512, 32, 8, 16, 1792)
    bart = resized(preset("bart-base"), depth=2)
    assert (bart.encoder_depth or bart.depth, bart.depth) == (2, 2)


def test_a_size_that_a_published_shape_cannot_take_is_refused():
    with pytest.raises(ValueError, match=r"heads is 12; it must be a divisor of the width 80"):
        resized(preset("gpt2"), width=80)
    with pytest.raises(ValueError, match=r"model\.width is 512; it must be 7168, the preset's"):
        resized(preset("deepseek-v3"), width=512)


def test_an_encoder_has_berts_shape():
    config = from_depth(12, vocab_size=30_522, context=512, width=768, family="encoder")
    assert shape(config) == (768, 12, 12, 64, 3072)
    assert (config.norm, config.norm_placement, config.positions) == ("layer", "post", "learned")
    assert config.pooler and config.head_transform
    assert not config.tie_embeddings


def test_an_encoder_decoder_has_t5s_shape():
    config = from_depth(8, vocab_size=32_128, context=512, family="encoder_decoder")
    assert shape(config) == (512, 8, 8, 64, 1376)
    assert (config.norm, config.positions, config.activation) == ("rms", "relative", "geglu")
    assert config.attention_scale == 1
    assert not config.tie_embeddings


LATENT = LatentConfig(kv_rank=8, rope_dim=8, value_dim=16)
EXPERTS = ExpertConfig(routed=8, active=2, width=16)
SMALL = from_depth(4, vocab_size=512, context=64)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"norm_placement": "both"}, "norm_placement is 'both'; it must be pre | post | sandwich"),
        ({"dropout": 1.0}, "dropout is 1.0; it must be at least 0 and below 1"),
        ({"residual": "parallel", "norm_placement": "post"}, "residual is 'parallel'; it must be"),
        ({"encoder_depth": 3}, "encoder_depth is 3; it must be None unless family is encoder_dec"),
        ({"multi_token": 1, "family": "encoder"}, "multi_token is 1; it must be 0 unless family"),
        ({"pooler": True}, "pooler is True; it must be False unless family is encoder"),
        (
            {"latent": LATENT, "positions": "learned"},
            "positions is 'learned'; it must be rope with",
        ),
        ({"latent": LATENT, "bias": "qkv"}, "bias is 'qkv'; it must be none with model.latent"),
        (
            {"latent": replace(LATENT, rope_dim=32)},
            "latent.rope_dim is 32; it must be even and below the 32 of head_dim",
        ),
        ({"experts": EXPERTS, "bias": "all"}, "bias is 'all'; it must be none, qkv or attention"),
        ({"rotary_dim": 34}, "rotary_dim is 34; it must be at most 32"),
        ({"rotary_dim": 5, "head_dim": 5}, "rotary_dim is 5; it must be at most 4"),
        ({"window_layers": ()}, "window_layers is (); it must be a choice for at least one layer"),
        ({"skip_first_norm": True}, "skip_first_norm is True; it must be False unless embedding_n"),
    ],
)
def test_settings_that_do_not_go_together_are_refused_by_field(change, message):
    with pytest.raises(ValueError, match=re.escape(f"model.{message}")):
        replace(SMALL, **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"groups": 3}, "experts.groups is 3; it must be a divisor of 8 experts"),
        ({"groups": 8, "active_groups": 1}, "experts.active is 2; it must be at most 1"),
    ],
)
def test_experts_that_cannot_be_are_refused_by_field(change, message):
    with pytest.raises(ValueError, match=re.escape(f"model.{message}")):
        replace(EXPERTS, **change)


def test_rotary_positions_go_by_layer():
    slow = RopeScaling(kind="linear", factor=4.0)
    config = replace(
        SMALL, rope_scaling=slow, rope_layers=(True, True, False), window=8,
        window_layers=(True, False), window_rope_theta=500.0,
    )  # fmt: skip
    assert [config.layer_rope(layer) for layer in range(4)] == [
        Rope(500.0), Rope(10_000.0, slow), None, Rope(10_000.0, slow),
    ]  # fmt: skip


def test_windows_and_experts_go_by_layer():
    config = replace(
        SMALL, window=8, window_layers=(True, False), experts=replace(EXPERTS, dense_layers=1)
    )
    assert [config.layer_window(layer) for layer in range(4)] == [8, None, 8, None]
    assert [config.layer_experts(layer) is None for layer in range(4)] == [
        True,
        False,
        False,
        False,
    ]
