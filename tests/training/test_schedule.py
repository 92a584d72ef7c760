"""Schedules: exact values at the corners, and what holds for all of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.training.schedule import factor
from tasks.training.settings import OptimizerSettings

SCHEDULES = ["constant", "linear", "cosine", "wsd", "inverse_sqrt"]


def path(steps: int, **settings: object) -> list[float]:
    chosen = OptimizerSettings(**settings)
    return [factor(step, steps, chosen) for step in range(1, steps + 1)]


def test_warmup_is_linear_and_reaches_the_peak_at_its_last_step() -> None:
    assert path(6, schedule="constant", warmup_steps=4) == [0.25, 0.5, 0.75, 1, 1, 1]


def test_linear_ends_at_its_final_share() -> None:
    assert path(5, schedule="linear", warmup_steps=1, final_share=0.2) == pytest.approx(
        [1.0, 0.8, 0.6, 0.4, 0.2]
    )


def test_cosine_is_half_way_in_the_middle() -> None:
    values = path(5, schedule="cosine", warmup_steps=1, final_share=0.0)
    assert values == pytest.approx([1.0, 0.8535533905932737, 0.5, 0.14644660940672627, 0.0])


def test_wsd_cools_down_over_its_last_share() -> None:
    values = path(10, schedule="wsd", warmup_steps=2, cooldown_share=0.4, final_share=0.0)
    assert values == pytest.approx([0.5, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25, 0.0])


def test_noam_peaks_at_the_warmup_step() -> None:
    values = path(16, schedule="inverse_sqrt", warmup_steps=4)
    assert values[:4] == pytest.approx([0.125, 0.25, 0.375, 0.5])
    assert values[15] == pytest.approx(0.25)
    assert max(values) == values[3]


def test_without_a_number_warmup_takes_a_twentieth_of_the_steps() -> None:
    values = path(100, schedule="constant")
    assert values[:6] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 1.0])


@given(
    schedule=st.sampled_from(SCHEDULES),
    steps=st.integers(1, 200),
    warmup=st.none() | st.integers(0, 300),
    share=st.floats(0.01, 1.0),
)
def test_every_factor_is_between_0_and_1(
    schedule: str, steps: int, warmup: int | None, share: float
) -> None:
    values = path(steps, schedule=schedule, warmup_steps=warmup, cooldown_share=share)
    assert all(0 < value <= 1 for value in values)
