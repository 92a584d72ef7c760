import pytest

from cluster.errors import BadInput
from tasks.scaling.plan import SweepSettings, members, short, warnings


def test_members_are_widths_times_tokens_cheapest_first():
    plan = members(SweepSettings(widths=(48, 32), tokens=(200_000, 100_000)))
    assert [m.label for m in plan] == ["d32-t100k", "d32-t200k", "d48-t100k", "d48-t200k"]


def test_the_target_comes_last_and_once():
    settings = SweepSettings(widths=(32,), tokens=(1000, 2000), target=(64, 3000))
    assert [m.label for m in members(settings)] == ["d32-t1k", "d32-t2k", "d64-t3k"]
    inside = settings.model_copy(update={"target": (32, 2000)})
    assert [m.label for m in members(inside)] == ["d32-t1k", "d32-t2k"]


def test_members_differ_in_width_and_heads_only():
    settings = SweepSettings(widths=(32, 64), tokens=(1000,), head_dim=16)
    small, large = members(settings)
    assert small.training == large.training
    assert (small.model.heads, large.model.heads) == (2, 4)
    assert small.model.depth == large.model.depth == 3
    assert small.training.optimizer.schedule == "wsd"


def test_a_width_that_heads_do_not_divide_is_refused():
    with pytest.raises(BadInput, match="width 40 is not a multiple of head_dim 16; use 32 or 48"):
        members(SweepSettings(widths=(40,)))


def test_an_empty_grid_is_refused():
    with pytest.raises(BadInput, match="at least one width"):
        members(SweepSettings(widths=()))


def test_a_sweep_of_too_few_steps_or_sizes_is_warned_about():
    found = warnings(members(SweepSettings(widths=(32, 64), tokens=(10_240, 200_000, 400_000))))
    assert found == [
        "d32-t10.24k has 20 steps; below 200 it is mostly warm-up, "
        "take smaller batches or more tokens",
        "d64-t10.24k has 20 steps; below 200 it is mostly warm-up, "
        "take smaller batches or more tokens",
        "2 widths; a law in both size and data needs at least 3",
    ]
    assert warnings(members(SweepSettings(tokens=(102_400, 204_800, 409_600)))) == []


@pytest.mark.parametrize(
    ("count", "expected"), [(512, "512"), (200_000, "200k"), (1_500_000, "1.5M"), (2 * 10**9, "2G")]
)
def test_short_counts(count, expected):
    assert short(count) == expected
