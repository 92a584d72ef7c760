import pytest
from pydantic import ValidationError

from cluster.errors import BadInput
from tasks.scaling.sweep.advice import warnings
from tasks.scaling.sweep.plan import SweepSettings, flops, parameters, plan_sweep, short

VOCAB = 260


def labels(settings):
    plan = plan_sweep(settings, VOCAB)
    return [m.label for m in plan.grid], [m.label for m in plan.targets]


def test_widths_times_tokens_cheapest_first_and_the_largest_is_kept_out():
    settings = SweepSettings(widths=(48, 32), tokens=(200_000, 100_000))
    assert labels(settings) == (["d32-t100k", "d48-t100k", "d32-t200k"], ["d48-t200k"])


def test_a_target_takes_no_part_in_the_grid():
    settings = SweepSettings(
        widths=(32,), tokens=(1024, 2048), targets=[{"width": 64, "tokens": 3072}]
    )
    assert labels(settings) == (["d32-t1.024k", "d32-t2.048k"], ["d64-t3.072k"])
    inside = settings.model_copy(
        update={"targets": SweepSettings(targets=[{"width": 32, "tokens": 2048}]).targets}
    )
    assert labels(inside) == (["d32-t1.024k"], ["d32-t2.048k"])


def test_budgets_buy_tokens_by_exact_flops():
    settings = SweepSettings(
        widths=(32, 64), budgets=(1e11, 3e11), targets=[{"width": 64, "flops": 1e12}]
    )
    plan = plan_sweep(settings, VOCAB)
    assert [float(f"{flops(m, VOCAB):.2g}") for m in plan.members] == [1e11, 3e11, 3e11, 1e12]
    per_token = 6 * (parameters(plan.grid[0], VOCAB) - VOCAB * 32) + 12 * 3 * 32 * 128
    assert plan.grid[0].training.tokens == pytest.approx(1e11 / per_token, abs=1024)


def test_a_budget_leaves_out_sizes_far_from_its_optimum():
    plan = plan_sweep(SweepSettings(widths=(32, 512), budgets=(1e11, 1e12), head_dim=8), VOCAB)
    assert {m.model.width for m in plan.members} == {32}


def test_ratios_are_tokens_per_parameter():
    plan = plan_sweep(SweepSettings(widths=(32, 64), ratios=(10, 40)), VOCAB)
    found = [m.training.tokens / parameters(m, VOCAB) for m in plan.members]
    assert sorted(round(ratio) for ratio in found) == [10, 10, 40, 40]


def test_members_differ_in_width_and_heads_only():
    plan = plan_sweep(SweepSettings(widths=(32, 64), tokens=(102_400,), head_dim=16), VOCAB)
    small, large = plan.members
    assert small.training == large.training
    assert (small.model.heads, large.model.heads) == (2, 4)
    assert small.model.depth == large.model.depth == 3


def test_one_warm_up_for_all_that_share_a_trunk():
    plan = plan_sweep(SweepSettings(widths=(32,), tokens=(51_200, 512_000)), VOCAB)
    assert {m.training.optimizer.warmup_steps for m in plan.members} == {20}
    assert [m.branch_step for m in plan.members] == [80, 800]
    assert plan.members[0].trunk().label == "d32-s80"
    assert plan.members[0].trunk().training.optimizer.schedule == "constant"


def test_four_lengths_from_one_trunk_take_35_percent_less():
    plan = plan_sweep(
        SweepSettings(widths=(32,), tokens=tuple(512_000 * k for k in (1, 2, 4, 8))), VOCAB
    )
    lengths = [m.training.steps for m in plan.members]
    shared = max(m.branch_step for m in plan.members)
    own = sum(m.training.steps - m.branch_step for m in plan.members)
    assert 1 - (shared + own) / sum(lengths) > 0.35


def test_the_learning_rate_falls_with_the_horizon_where_asked():
    settings = SweepSettings(widths=(32,), tokens=(1_000_000, 8_000_000), horizon=1 / 3)
    rates = {m.training.optimizer.learning_rate for m in plan_sweep(settings, VOCAB).members}
    assert [*rates] == pytest.approx([0.001])


def test_unusable_grids_are_refused():
    with pytest.raises(BadInput, match="width 40 is not a multiple of head_dim 16; use 32 or 48"):
        plan_sweep(SweepSettings(widths=(40,)), VOCAB)
    with pytest.raises(BadInput, match="at least one width"):
        plan_sweep(SweepSettings(widths=()), VOCAB)
    with pytest.raises(ValidationError, match="either flops or tokens"):
        SweepSettings(targets=[{"width": 32}])


def test_a_sweep_of_too_few_steps_or_sizes_is_warned_about():
    settings = SweepSettings(widths=(32, 64), tokens=(10_240, 200_000, 400_000))
    found = warnings(plan_sweep(settings, VOCAB), VOCAB, None)
    assert found[:3] == [
        "d32-t10.24k has 20 steps; below 200 it is mostly warm-up, "
        "take smaller batches or more tokens",
        "d64-t10.24k has 20 steps; below 200 it is mostly warm-up, "
        "take smaller batches or more tokens",
        "2 widths; a law in both size and data needs at least 3",
    ]


def test_a_sweep_over_widths_goes_by_width_unless_told_otherwise_which_is_warned_about():
    tuned = SweepSettings(optimizer={"learning_rate": 0.01, "scales": {"head": 3}}).optimizer
    assert (tuned.learning_rate, tuned.base_width, tuned.weight_decay) == (0.01, 96, 0.05)
    assert (tuned.scales.head, tuned.scales.embeddings, tuned.decayed) == (3, 15, ("matrices",))
    for base_width in (96, None):
        settings = SweepSettings(optimizer={"base_width": base_width})
        found = warnings(plan_sweep(settings, VOCAB), VOCAB, None)
        told = [w for w in found if "widths 32 to 64 learn at one rate" in w]
        assert bool(told) == (base_width is None)


def test_edges_repeats_and_distant_targets_are_predicted():
    settings = SweepSettings(
        widths=(24, 32, 48),
        head_dim=8,
        budgets=(3e12,),
        window=(1, 1000),
        targets=[{"width": 128, "flops": 1e12}],
    )
    found = warnings(plan_sweep(settings, VOCAB), VOCAB, unique_tokens=4_000_000)
    assert any("will lie at an edge" in w and "add larger models" in w for w in found)
    assert any("d32-t6.865M sees its text 1.7 times" in w for w in found)
    assert any("target d128" in w and "outside the" in w for w in found)


@pytest.mark.parametrize(
    ("count", "expected"), [(512, "512"), (200_000, "200k"), (1_500_000, "1.5M"), (2 * 10**9, "2G")]
)
def test_short_counts(count, expected):
    assert short(count) == expected
