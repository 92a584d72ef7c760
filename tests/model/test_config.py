"""The dial, and refusals that name the field."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.config import ModelConfig, from_depth


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
        ({"family": "encoder"}, r"model\.family is 'encoder'; it must be decoder"),
        ({"context": 0}, r"model\.context is 0; it must be at least 1"),
    ],
)
def test_a_shape_that_cannot_be_built_is_refused_by_field(change, message):
    with pytest.raises(ValueError, match=message):
        from_depth(4, **{"vocab_size": 512, "context": 64, **change})
