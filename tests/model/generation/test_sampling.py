"""What may be drawn, and how often it is."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.generation import Sampling, restrict
from model.generation.sampling import draw, uniforms

PROBS = [0.1, 0.5, 0.15, 0.25]


def kept(probs: list[float], **limits: float) -> list[int]:
    logits = torch.tensor([probs]).log()
    return restrict(logits, Sampling(**limits))[0].isfinite().nonzero()[:, 0].tolist()


@pytest.mark.parametrize(
    ("limits", "left"),
    [
        ({"top_p": 0.4}, [1]),
        ({"top_p": 0.6}, [1, 3]),
        ({"top_p": 0.85}, [1, 2, 3]),
        ({"top_p": 1.0}, [0, 1, 2, 3]),
        ({"top_k": 2}, [1, 3]),
        ({"top_k": 99}, [0, 1, 2, 3]),
        ({"top_k": 2, "top_p": 0.6}, [1]),  # of what top_k leaves, token 1 has two thirds
        ({"min_p": 0.4}, [1, 3]),
        ({"min_p": 0.25}, [1, 2, 3]),
        ({"min_p": 1.0}, [1]),
        ({"temperature": 2.0, "min_p": 0.6}, [1, 3]),  # 0.25 / 0.5 becomes its root, 0.71
    ],
)
def test_limits_keep_the_likeliest(limits, left):
    assert kept(PROBS, **limits) == left


def test_equally_likely_tokens_do_not_add_to_top_k():
    assert len(kept([0.25] * 4, top_k=2)) == 2


def test_temperature_divides_the_logits():
    logits = torch.tensor([[0.0, 1.0, 3.0]])
    warm = restrict(logits, Sampling(temperature=2.0))
    assert torch.allclose(warm, (logits / 2).log_softmax(-1))


@given(
    st.lists(st.floats(-5, 5), min_size=2, max_size=20),
    st.integers(1, 25),
    st.floats(0.01, 1),
    st.floats(0.01, 1),
)
@settings(deadline=None)
def test_what_is_kept_is_a_distribution_over_the_likeliest(values, top_k, top_p, min_p):
    logits = torch.tensor([values])
    probs = restrict(logits, Sampling(top_k=top_k, top_p=top_p, min_p=min_p)).exp()[0]
    assert float(probs.sum()) == pytest.approx(1, abs=1e-4)
    assert 1 <= int((probs > 0).sum()) <= top_k
    assert logits[0][probs > 0].max() == logits.max()
    if (probs == 0).any():
        assert logits[0][probs > 0].min() >= logits[0][probs == 0].max()


@given(
    st.lists(st.floats(-8, 8, width=32), min_size=2, max_size=30),
    st.floats(0.05, 0.99),
    st.integers(0, 10**6),
)
@settings(deadline=None)
def test_draws_never_leave_the_nucleus(values, top_p, seed):
    logits = torch.tensor([values])
    probs = logits.double().softmax(-1)[0].sort(descending=True)
    rounding = 1e-6  # the code's softmax has single precision
    size = int((probs.values.cumsum(0)[:-1] < top_p + rounding).sum()) + 1
    least = float(probs.values[size - 1]) - rounding
    drawn = draw(
        restrict(logits, Sampling(top_p=top_p)).expand(50, -1),
        uniforms([seed], 50)[0],
    )
    assert float(logits.double().softmax(-1)[0][drawn].min()) >= least


def test_a_number_falls_on_the_token_whose_share_holds_it():
    log_probs = torch.tensor([PROBS]).log().expand(6, -1)
    numbers = torch.tensor([0.0, 0.09, 0.11, 0.59, 0.61, 1 - 2**-53], dtype=torch.float64)
    assert draw(log_probs, numbers).tolist() == [0, 0, 1, 1, 2, 3]


def test_an_impossible_token_is_not_drawn_at_either_end():
    log_probs = torch.tensor([[-math.inf, 0.0, -math.inf]]).expand(2, -1)
    assert draw(log_probs, torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64)).tolist() == [1, 1]


def test_a_seed_gives_its_numbers_in_any_company():
    assert torch.equal(uniforms([5, 9], 4)[1], uniforms([9], 4)[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"temperature": -1.0}, "temperature is -1.0; it must be at least 0"),
        ({"top_p": 1.5}, "top_p is 1.5; it must be above 0, at most 1"),
        ({"min_p": 0.0}, "min_p is 0.0; it must be above 0, at most 1"),
        ({"top_k": 0}, "top_k is 0; it must be at least 1"),
    ],
)
def test_settings_out_of_range_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        Sampling(**change)
