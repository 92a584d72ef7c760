import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.data.deduplication import pairs as pairs_module
from tasks.data.deduplication import sets as sets_module
from tasks.data.deduplication.pairs import CHECKED, SKIPPED, NearPairs, similarity
from tasks.data.deduplication.sets import ShingleSets, buckets_of, compare, packed


def jaccard(a, b):
    return len(a & b) / len(a | b) if a | b else 0.0


def linked(groups, buckets, tmp_path, threshold=0.8):
    """Compare sets of numbers in buckets; the forest."""
    sets = ShingleSets(len(groups), tmp_path)
    for number, group in enumerate(groups):
        values = np.array(sorted(group), np.uint64)
        sets.add(np.array([number]), values, np.array([0, len(values)]))
    near_pairs = NearPairs(len(groups))
    members = np.array([m for bucket in buckets for m in bucket], np.int64)
    starts = np.cumsum([0, *map(len, buckets)])
    compare(near_pairs, sets, (members, starts), threshold)
    return near_pairs


def components(groups, threshold):
    """By brute force: for each group the lowest of its component."""
    roots = list(range(len(groups)))
    for a, b in itertools.combinations(range(len(groups)), 2):
        if jaccard(groups[a], groups[b]) >= threshold and roots[a] != roots[b]:
            low, high = sorted((roots[a], roots[b]))
            roots = [low if r == high else r for r in roots]
    return roots


@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)), st.floats(0.05, 1))
def test_similarity_is_that_of_the_sets_or_known_to_be_less(a, b, least):
    values = np.array([*sorted(a), *sorted(b)], np.uint64)
    ends = (0, len(a), len(a), len(values))
    true = jaccard(a, b)
    found = similarity(values, *ends, least)
    assert found == pytest.approx(true) if true >= least else found in (-1.0, pytest.approx(true))
    if a | b:
        assert similarity(values, *ends, 0.0) == pytest.approx(true)


@given(st.lists(st.sets(st.integers(0, 12), min_size=1), min_size=2, max_size=12))
def test_all_pairs_of_a_bucket_are_settled(groups):
    found = linked(groups, [range(len(groups))], None, 0.5)
    assert found.roots.tolist() == components(groups, 0.5)


def random_groups(count):
    rng = random.Random(count)
    bases = [set(rng.sample(range(10**6), 30)) for _ in range(5)]
    groups = []
    for number in range(count):
        base = sorted(bases[number % 5])
        groups.append(set(rng.sample(base, 30 - rng.randrange(9))) | {number + 10**7})
    return groups


@pytest.mark.parametrize("most", [1 << 20, 2048])
def test_large_buckets_are_settled_too_also_a_part_at_a_time(tmp_path, monkeypatch, most):
    monkeypatch.setattr(sets_module, "SETS_BYTES", most)
    groups = random_groups(200)
    found = linked(groups, [range(200), range(0, 200, 5), [1, 2]], tmp_path)
    assert found.roots.tolist() == components(groups, 0.8)
    assert found.tally[SKIPPED] == 0
    pairs, similarities = np.concatenate(found.pairs), np.concatenate(found.similarities)
    assert len(pairs) == 200 - len(set(found.roots.tolist()))
    for (a, b), s in zip(pairs.tolist(), similarities, strict=True):
        assert s == pytest.approx(jaccard(groups[a], groups[b])) and s >= 0.8


def test_only_buckets_are_compared(tmp_path):
    assert linked([{1}, {1}, {1}], [[0, 2]], tmp_path).roots.tolist() == [0, 1, 0]
    assert linked([{1}, {1}], [], tmp_path).roots.tolist() == [0, 1]


def test_a_giant_cluster_is_compared_once_each(tmp_path):
    groups = [set(range(100)) | {1000 + n} for n in range(5000)]
    found = linked(groups, [range(5000)] * 14, tmp_path)
    assert set(found.roots.tolist()) == {0}
    assert found.tally[CHECKED] == 4999


def test_outliers_in_a_giant_cluster_cost_no_comparison_with_each_member(tmp_path):
    groups = [set(range(100)) | {1000 + n} for n in range(3000)]
    groups += [set(range(40)) | set(range(10**6 * n, 10**6 * n + 60)) for n in range(1, 31)]
    found = linked(groups, [range(len(groups))], tmp_path)
    assert found.roots.tolist() == [0] * 3000 + list(range(3000, 3030))
    assert found.tally[CHECKED] < 2 * len(groups) and found.tally[SKIPPED] == 0


def test_a_common_template_costs_no_comparison_of_every_pair(tmp_path):
    rng = random.Random(0)
    shared = {rng.randrange(1 << 48) for _ in range(200)}
    groups = [shared | {rng.randrange(1 << 48) for _ in range(60)} for _ in range(2000)]
    found = linked(groups, [range(2000)], tmp_path)
    assert found.roots.tolist() == list(range(2000))
    assert found.tally[SKIPPED] == 0 and found.tally[CHECKED] < 20000


def test_pairs_left_out_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(pairs_module, "MOST_COMPARISONS", 10)
    groups = [set(range(70)) | set(range(1000 * n, 1000 * n + 10)) for n in range(1, 101)]
    found = linked(groups, [range(100)], tmp_path)
    assert 4000 < found.tally[SKIPPED] < 100 * 99 // 2


def test_buckets_are_groups_of_equal_keys():
    keys = np.array([7, 1, 7, 2, 1, 7], np.uint64)
    members, starts = buckets_of(keys, np.array([10, 11, 12, 13, 14, 15]))
    assert members.tolist() == [11, 14, 10, 12, 15] and starts.tolist() == [0, 2, 5]
    assert buckets_of(keys[:2], np.array([0, 1]))[0].tolist() == []
    assert buckets_of(keys[:0], np.zeros(0, np.int64))[0].tolist() == []


def test_packing_fills_up_to_the_limit():
    assert packed(np.array([3, 3, 5, 1, 20, 1]), 6).tolist() == [0, 0, 1, 1, 2, 3]
