import pytest

from cluster.errors import BadInput
from tasks.scaling.sweep.budget import design, read_budget, total_flops
from tasks.scaling.sweep.plan import SweepSettings, flops, plan_sweep

SMALL = SweepSettings(head_dim=8)


@pytest.mark.parametrize("total", [5e13, 1e15, 1e18])
def test_a_budget_is_spent_and_not_exceeded(total):
    planned = design(total, SMALL, vocab_size=260)
    assert 0.5 * total < total_flops(planned, 260) <= total
    plan = plan_sweep(planned, 260)
    assert len(planned.budgets) == 3
    largest = max(flops(m, 260) for m in plan.grid)
    assert all(flops(t, 260) == pytest.approx(largest * 10**0.5, rel=0.1) for t in plan.targets)


def test_the_batch_grows_with_the_budget():
    small, large = (design(total, SMALL, 260).batch_tokens for total in (5e13, 1e18))
    assert small < large and large % SMALL.context == 0


def test_budgets_are_flops_time_or_device_hours():
    assert read_budget("1e15") == (1e15, "flops")
    assert read_budget("30min") == (30 * 60, "seconds")
    assert read_budget("4device-hours") == (4 * 3600, "device_seconds")
    with pytest.raises(BadInput, match="write FLOPs"):
        read_budget("3 euros")


def test_too_small_a_budget_is_refused():
    with pytest.raises(BadInput, match="too small for three sizes"):
        design(1e6, SMALL, vocab_size=260)
