"""The interval of a share against published values."""

import pytest

from tasks.evaluation.statistics.wilson import wilson_interval


@pytest.mark.parametrize(
    ("right", "rows", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (0, 20, 0.0, 0.1611), (20, 20, 0.8389, 1.0)],
)
def test_wilson_interval(right: int, rows: int, low: float, high: float) -> None:
    # Newcombe 1998, table I: score method without continuity correction
    assert wilson_interval(right, rows) == pytest.approx((low, high), abs=1e-4)
