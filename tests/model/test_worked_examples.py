"""Numbers worked out by hand in teaching material; where it prints a wrong one, the right one."""

import math

import pytest
import torch

from model.attention import attend
from model.blocks import make_norm
from model.config import ModelConfig
from model.masks import Sight, nearby, self_sight
from model.positions import sinusoids
from model.shapes import from_depth

CPU = torch.device("cpu")


def mixed(queries: list[list[float]], sight: Sight | None = None) -> list[list[float]]:
    """Attention to the keys [1 0 0], [0 1 0], [0 0 1], whose values are the same."""
    config = ModelConfig(
        vocab_size=3, context=3, width=3, depth=1, heads=1, kv_heads=1, head_dim=3, ffn_width=1,
        positions="learned",
    )  # fmt: skip
    unit = torch.eye(3)[None, None]
    asked = torch.tensor([[queries]], dtype=torch.float32)
    return attend(config, asked, unit, unit, sight or Sight(), training=False)[0, 0].tolist()


def test_softmax_of_0_and_1_over_root_3_and_0():
    # "Dragon breathes fire": printed are .212, .576, .212, which no softmax of these scores gives.
    e = math.exp(1 / math.sqrt(3))
    right = [1 / (e + 2), e / (e + 2), 1 / (e + 2)]
    assert right == pytest.approx([0.264, 0.471, 0.264], abs=5e-4)
    assert mixed([[0, 1, 0]])[0] == pytest.approx(right)


def test_self_attention_of_three_unit_vectors():
    # Printed is the identity, "since all rows and columns are the same"; each row is the softmax
    # above, with the larger weight on the diagonal.
    rows = mixed([[1, 0, 0], [0, 1, 0], [0, 0, 1]])
    for i, row in enumerate(rows):
        assert row == pytest.approx([0.471 if i == j else 0.264 for j in range(3)], abs=5e-4)


def test_scores_are_divided_by_the_root_of_the_key_size_not_by_the_size():
    e = math.exp(1 / 3)
    assert mixed([[0, 1, 0]])[0][1] != pytest.approx(e / (e + 2), abs=1e-2)


def test_the_causal_mask_of_a_4_by_4_matrix_keeps_the_lower_left_triangle():
    # The text says upper right; its own formula, and this, keep the lower left.
    matrix = torch.arange(1.0, 17).view(4, 4)
    inf = math.inf
    assert matrix.masked_fill(~nearby(4, 4, CPU), -inf).tolist() == [
        [1, -inf, -inf, -inf],
        [5, 6, -inf, -inf],
        [9, 10, 11, -inf],
        [13, 14, 15, 16],
    ]


def test_the_future_has_no_weight():
    rows = mixed([[1, 0, 0], [0, 1, 0], [0, 0, 1]], self_sight(3, 3, CPU))
    e = math.exp(1 / math.sqrt(3))
    assert rows[0] == [1, 0, 0]
    assert rows[1] == pytest.approx([1 / (1 + e), e / (1 + e), 0])


def test_layer_norm_of_an_added_output():
    added = torch.tensor([0.5, 0.6, 0.4, 0.3]) + torch.tensor([0.1, 0.2, 0.3, 0.4])
    assert added.tolist() == pytest.approx([0.6, 0.8, 0.7, 0.7])
    assert float(added.mean()) == pytest.approx(0.7)
    assert float(added.var(correction=0)) == pytest.approx(0.005)
    config = from_depth(1, vocab_size=3, context=3, width=4, heads=1, family="encoder")
    normed = make_norm(config)(added).tolist()
    assert normed == pytest.approx([-math.sqrt(2), math.sqrt(2), 0, 0], abs=1e-4)


def test_layer_norm_has_a_gain_and_a_bias_for_each_dimension():
    norm = make_norm(from_depth(1, vocab_size=3, context=3, width=4, heads=1, family="encoder"))
    assert norm.weight.shape == norm.bias.shape == (4,)
    norm.weight.data = torch.tensor([1.0, 2, 3, 4])
    norm.bias.data = torch.tensor([5.0, 6, 7, 8])
    out = norm(torch.tensor([0.6, 0.8, 0.7, 0.7])).tolist()
    assert out == pytest.approx([5 - 2**0.5, 6 + 2 * 2**0.5, 7, 8], abs=1e-4)


def test_sinusoidal_position_1_of_4_dimensions():
    # Printed is [0, .84, .91, .54]: position 1 is sin 1, cos 1, sin .01, cos .01.
    found = sinusoids(torch.tensor([[0, 1]]), 4)[0]
    assert found[0].tolist() == [0, 1, 0, 1]
    assert found[1].tolist() == pytest.approx([0.84, 0.54, 0.01, 1.0], abs=5e-3)


@pytest.mark.parametrize("width", [4, 6, 64])
def test_sinusoids_are_the_published_ones(width):
    # The exponent is -2k/d: wavelengths grow from 2 pi to 10000 2 pi.
    table = sinusoids(torch.tensor([[0, 3, 700]]), width)[0]
    for row, t in zip(table.double(), (0, 3, 700), strict=True):
        for k in range(width // 2):
            angle = t * 10_000 ** (-2 * k / width)
            assert float(row[2 * k]) == pytest.approx(math.sin(angle), abs=1e-4)
            assert float(row[2 * k + 1]) == pytest.approx(math.cos(angle), abs=1e-4)


@pytest.mark.parametrize("shift", [1, 7, -5])
def test_a_shift_of_sinusoids_is_a_rotation(shift):
    # Printed is p(t + s) = diag(p(s)) p(t); it is a rotation of each pair by s 10000^(-2k/d).
    width, t = 8, 20
    here, there = sinusoids(torch.tensor([[t, t + shift]]), width)[0].double()
    turn = torch.zeros(width, width, dtype=torch.float64)
    for k in range(width // 2):
        angle = shift * 10_000 ** (-2 * k / width)
        cos, sin = math.cos(angle), math.sin(angle)
        turn[2 * k : 2 * k + 2, 2 * k : 2 * k + 2] = torch.tensor([[cos, sin], [-sin, cos]])
    assert torch.allclose(turn @ here, there, atol=1e-5)
    assert torch.allclose(turn @ turn.T, torch.eye(width).double(), atol=1e-12)
    diagonal = sinusoids(torch.tensor([[abs(shift)]]), width)[0, 0].double()
    assert not torch.allclose(diagonal * here, there, atol=0.1)
