"""Rotary, ALiBi and relative positions against values worked out by hand or by plain code."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.config import Rope, RopeScaling
from model.positions import (
    RelativeBias,
    alibi,
    alibi_slopes,
    relative_buckets,
    rope_frequencies,
    rotate,
    rotation,
)
from model.shapes import from_depth

CPU = torch.device("cpu")
SMALL = from_depth(2, vocab_size=61, context=24, width=32, heads=4)
WIDE = replace(SMALL, head_dim=128, rope_theta=500_000.0)


@given(
    shift=st.integers(0, 5000), gap=st.integers(-300, 300), seed=st.integers(0, 99),
    config=st.sampled_from([SMALL, replace(SMALL, rope_theta=500.0)]),
)  # fmt: skip
@settings(max_examples=50, deadline=None)
def test_rotated_products_depend_on_the_distance_alone(shift, gap, seed, config):
    q, k = torch.randn(2, 1, 1, 1, 8, generator=torch.Generator().manual_seed(seed)).double()

    def product(of_q: int, of_k: int) -> float:
        turns = [
            rotation(config, config.layer_rope(0), torch.tensor([[t]]), torch.float64)
            for t in (of_q, of_k)
        ]
        return float((rotate(q, turns[0]) * rotate(k, turns[1])).sum())

    assert product(400, 400 + gap) == pytest.approx(
        product(400 + shift, 400 + gap + shift), abs=5e-2
    )
    assert product(gap + 300, gap + 300) == pytest.approx(float((q * k).sum()), abs=1e-5)


def stretched(**scaling) -> list[float]:
    """Each frequency over what it was."""
    here = torch.arange(1)[None]
    plain, slow = (
        rope_frequencies(WIDE, Rope(WIDE.rope_theta, stretch), here)
        for stretch in (None, RopeScaling(**scaling))
    )
    return (slow / plain).tolist()


def test_linear_scaling_slows_every_pair():
    assert stretched(kind="linear", factor=4.0) == pytest.approx([0.25] * 64)


def test_llama_3_keeps_fast_pairs_and_slows_slow_ones():
    bounds = {"low_frequency_factor": 1.0, "high_frequency_factor": 4.0, "original_context": 8192}
    found = stretched(kind="llama3", factor=8.0, **bounds)
    for k, ratio in enumerate(found):
        wavelength = 2 * math.pi * 500_000.0 ** (2 * k / 128)
        if wavelength < 8192 / 4:
            assert ratio == pytest.approx(1)
        elif wavelength > 8192 / 1:
            assert ratio == pytest.approx(1 / 8)
        else:
            smooth = (8192 / wavelength - 1) / (4 - 1)
            assert ratio == pytest.approx((1 - smooth) / 8 + smooth, rel=1e-5)


def test_yarn_blends_between_the_pairs_that_turn_32_times_and_once():
    bounds = {"low_frequency_factor": 1.0, "high_frequency_factor": 32.0, "original_context": 4096}
    found = stretched(kind="yarn", factor=40.0, **bounds)
    turns = [4096 / (2 * math.pi) * 500_000.0 ** (-2 * k / 128) for k in range(64)]
    first = max(k for k in range(64) if turns[k] >= 32)
    last = min(k for k in range(64) if turns[k] <= 1)
    expected = [1 - min(max((k - first) / (last - first), 0), 1) * (1 - 1 / 40) for k in range(64)]
    assert found == pytest.approx(expected, rel=1e-5)


def test_an_attention_factor_lengthens_what_is_turned():
    scaling = RopeScaling(kind="yarn", factor=4.0, attention_factor=1.5)
    turn = rotation(SMALL, Rope(1e4, scaling), torch.tensor([[9]]), torch.float32)
    x = torch.randn(1, 1, 1, 8)
    assert float(rotate(x, turn).norm()) == pytest.approx(1.5 * float(x.norm()), rel=1e-5)


def test_alibi_slopes_are_the_published_ones():
    assert alibi_slopes(8) == [2.0**-i for i in range(1, 9)]
    assert alibi_slopes(16) == pytest.approx([2 ** (-i / 2) for i in range(1, 17)])
    # 12 heads: those of 8, then every other one of 16.
    sixteen = alibi_slopes(16)
    assert alibi_slopes(12) == pytest.approx(alibi_slopes(8) + sixteen[0:8:2])
    assert alibi_slopes(1) == [2.0**-8]


def test_alibi_falls_with_the_distance():
    bias = alibi(8, 2, 4, CPU)
    assert bias.shape == (8, 2, 4)
    assert bias[0].tolist() == [[-1, -0.5, 0, -0.5], [-1.5, -1, -0.5, 0]]
    assert torch.equal(bias[3], bias[0] / 8)


def published_bucket(relative: int, bidirectional: bool, buckets: int, furthest: int) -> int:
    """T5's, one number at a time; `relative` is the key's position less the query's."""
    bucket = 0
    if bidirectional:
        buckets //= 2
        bucket = buckets if relative > 0 else 0
        distance = abs(relative)
    else:
        distance = max(-relative, 0)
    exact = buckets // 2
    if distance < exact:
        return bucket + distance
    far = math.log(distance / exact) / math.log(furthest / exact) * (buckets - exact)
    return bucket + min(exact + int(far + 1e-6), buckets - 1)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("buckets", "furthest"), [(32, 128), (8, 20)])
def test_relative_buckets_are_t5s(causal, buckets, furthest):
    distance = torch.arange(-300, 300)
    expected = [published_bucket(-d, not causal, buckets, furthest) for d in distance.tolist()]
    assert relative_buckets(distance, buckets, furthest, causal).tolist() == expected


def test_a_relative_bias_has_a_number_for_each_head_and_bucket():
    config = replace(SMALL, relative_buckets=8, relative_distance=20)
    bias = RelativeBias(config, causal=True)
    found = bias(2, 5)
    assert found.shape == (4, 2, 5)
    assert torch.equal(found[1, 0], bias.table.weight[[3, 2, 1, 0, 0], 1])
    assert torch.equal(found[2, 1], bias.table.weight[[4, 3, 2, 1, 0], 2])
