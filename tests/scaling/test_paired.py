"""Paired tests over seeds: the figures of a textbook test, and how often they are wrong."""

import numpy as np
import pytest
from scipy import stats

from tasks.scaling.variants.paired import best, better, difference, holm, mean_interval, probability

TRIALS = 1000


def seeded(values):
    return dict(enumerate(values))


def simulated(gains, seeds=5, trials=TRIALS, luck=1.0, seed=0):
    """How often each of some variants is called best, in trials whose variants share the luck of
    each seed. Variant i is better than the baseline by `gains[i]` standard deviations of the
    paired difference.
    """
    random = np.random.default_rng(seed)
    found = dict.fromkeys([None, *range(len(gains))], 0)
    for _ in range(trials):
        shared = luck * random.normal(size=seeds)
        losses = [shared + random.normal(size=seeds) / np.sqrt(2) - gain for gain in gains]
        winner, why = best({str(i): seeded(loss) for i, loss in enumerate(losses)})
        assert (winner is None) == bool(why)
        found[None if winner is None else int(winner)] += 1
    return found


def test_intervals_and_p_values_are_the_librarys():
    mine, others = np.random.default_rng(1).normal(size=(2, 6))
    gap = difference(seeded(mine), seeded(others))
    theirs = stats.ttest_rel(mine, others, alternative="less")
    between = stats.ttest_rel(mine, others).confidence_interval(0.95)
    assert gap.p == pytest.approx(theirs.pvalue, rel=1e-9)
    assert gap.interval == pytest.approx([between.low, between.high], rel=1e-9)
    mean, interval = mean_interval(mine)
    single = stats.ttest_1samp(mine, 0).confidence_interval(0.95)
    assert mean == pytest.approx(mine.mean())
    assert interval == pytest.approx([single.low, single.high], rel=1e-9)


def test_holm_raises_each_p_by_what_is_left_to_test():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


@pytest.mark.parametrize("luck", [0.0, 1.0, 30.0])
def test_a_useless_change_is_hardly_ever_called_best(luck):
    """The level is 1 %: 10 of 1000, with a binomial standard deviation of 3."""
    assert simulated([0.0, 0.0], luck=luck)[1] <= 22


@pytest.mark.parametrize("luck", [0.0, 1.0, 30.0])
def test_a_gain_of_three_standard_deviations_is_found(luck):
    """The power of this test with 4 degrees of freedom is .96."""
    found = simulated([0.0, 3.0], luck=luck)
    assert found[1] >= 930 and found[0] == 0


def test_many_useless_changes_are_not_called_best_more_often_than_one():
    found = simulated([0.0] * 6)
    assert sum(found[i] for i in range(1, 6)) <= 22


def test_the_first_of_two_equal_gains_is_not_called_better_than_the_other():
    found = simulated([0.0, 9.0, 9.0])
    assert found[1] + found[2] <= 35 and found[0] == 0


def test_no_seed_no_verdict_and_what_to_do():
    assert best({"a": {0: 1.0}, "b": {0: 0.1}}) == (
        None,
        "one seed: no spread is known, add --seeds 5",
    )


def test_the_reason_names_the_closest_and_the_numbers():
    figures = {
        "baseline": seeded([1.00, 1.02, 0.99]),
        "depth=3": seeded([0.99, 1.03, 0.97]),
        "depth=9": seeded([2.0, 2.02, 1.98]),
    }
    winner, why = best(figures)
    assert winner is None
    assert why == (
        "depth=3 is not shown to be better than baseline: 3 seeds, difference -0.00667 "
        "[-0.0446, +0.0313], p .26; 0.01 of 2 comparisons (Holm) is asked for"
    )


def test_a_variant_that_lacks_a_seed_is_neither_best_nor_in_the_way():
    wide, narrow = seeded([1.0, 1.1, 0.9]), seeded([0.1, 0.2, 0.01])
    torn = {0: 0.0, 1: 0.0}
    assert best({"wide": wide, "torn": torn, "narrow": narrow})[0] == "narrow"
    assert best({"wide": wide, "torn": torn})[1].startswith("only wide was trained to the end")
    assert best({"torn": {}, "too": {}})[1].startswith("no variant was trained to the end")
    assert difference(wide, {}) is None and difference(wide, torn).n == 2


def test_figures_that_do_not_vary():
    same = seeded([1.0, 1.5, 1.25])
    assert difference(same, same).p == 1.0 and best({"a": same, "b": dict(same)})[0] is None
    lower = {seed: value - 0.25 for seed, value in same.items()}  # exact in binary
    assert (difference(lower, same).p, difference(same, lower).p) == (0.0, 1.0)
    assert best({"a": same, "b": lower})[0] == "b"
    fixed, other = seeded([1.0] * 3), seeded([0.5] * 3)
    assert difference(fixed, fixed).p == 1.0 and difference(other, fixed).p is None
    assert "no figure depends on the seed" in best({"a": fixed, "b": other})[1]
    assert better([difference(other, fixed)]) == [False]


def test_probabilities_are_short():
    said = [probability(p) for p in (0.0, 0.0004, 0.004, 0.0123, 0.3149, 0.96, 0.9999, 1.0)]
    assert said == ["<.001", "<.001", ".004", ".012", ".31", ".96", "1", "1"]
