from math import isclose

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import BadInput
from tasks.tokens.mixture.index import MixtureIndex, SourceSize, plan_mixture
from tasks.tokens.mixture.repetition import repetition_warnings
from tasks.tokens.mixture.settings import Mixture, MixtureStage
from tasks.tokens.steps import Steps

WEB, BOOKS, CODE = (
    SourceSize(n, s, s * 10) for n, s in (("web", 1000), ("books", 50), ("code", 200))
)


def mixture_index_of(
    *stages: tuple[float, dict[str, float]],
    caps: dict[str, float] | None = None,
    steps: int = 100,
    batch: int = 10,
    sources: tuple[SourceSize, ...] = (WEB, BOOKS, CODE),
) -> MixtureIndex:
    mixture = Mixture(
        stages=tuple(MixtureStage(until=until, weights=weights) for until, weights in stages),
        max_epochs=caps or {},
    )
    return plan_mixture(mixture, sources, Steps(steps, batch))


@settings(deadline=None, max_examples=60)
@given(
    weights=st.lists(st.floats(0.001, 1), min_size=1, max_size=6),
    first=st.integers(0, 10**12),
)
def test_any_prefix_has_its_shares_and_every_place_of_a_source_comes_once(
    weights: list[float], first: int
) -> None:
    sources = tuple(SourceSize(f"s{i}", 7, 70) for i in range(len(weights)))
    named = {f"s{i}": w for i, w in enumerate(weights)}
    draws = mixture_index_of((1.0, named), sources=sources, steps=1 << 40, batch=1)
    before, count = draws.counts(first), 500
    source_B, place_B = draws.locate(np.arange(first, first + count))
    for index, weight in enumerate(weights):
        own = place_B[source_B == index]
        assert own.tolist() == list(range(before[index], before[index] + len(own)))
        share = weight / sum(weights)
        quantum = first / (1 << 22)
        assert abs(before[index] - first * share) <= len(weights) + quantum
    assert [b - a for a, b in zip(before, draws.counts(first + count), strict=True)] == [
        int((source_B == i).sum()) for i in range(len(weights))
    ]


def test_stages_change_the_shares_at_their_step() -> None:
    draws = mixture_index_of((0.8, {"web": 0.9, "books": 0.1}), (1.0, {"code": 3, "books": 1}))
    source_B, _ = draws.locate(np.arange(1000))
    assert np.bincount(source_B[:800], minlength=3).tolist() == [720, 80, 0]
    assert np.bincount(source_B[800:], minlength=3).tolist() == [0, 50, 150]
    assert draws.counts() == [720, 130, 150]


def test_a_source_at_its_cap_gives_its_share_to_the_others_in_proportion() -> None:
    draws = mixture_index_of((1.0, {"web": 0.5, "books": 0.25, "code": 0.25}), caps={"books": 2})
    source_B, place_B = draws.locate(np.arange(1000))
    assert draws.counts() == [600, 100, 300]
    spent = int(np.flatnonzero(source_B == 1)[-1]) + 1
    assert draws.segments[1].begin == 401 >= spent > 395
    after = np.bincount(source_B[spent:], minlength=3)
    assert after[1] == 0
    assert isclose(after[0] / after.sum(), 2 / 3, abs_tol=0.005)
    assert place_B[source_B == 1].max() == 99
    assert [s["epochs"] for s in draws.summary()][1] == 2.0


def test_caps_that_leave_too_little_are_refused() -> None:
    with pytest.raises(BadInput, match=r"max_epochs leaves 150 samples and training takes 1000"):
        mixture_index_of((1.0, {"web": 1, "books": 1}), caps={"web": 0.1, "books": 1})


def test_an_unknown_or_empty_source_is_refused() -> None:
    with pytest.raises(BadInput, match="no source 'boks' in the shards' training split: did you"):
        mixture_index_of((1.0, {"boks": 1}))
    with pytest.raises(BadInput, match="its training text fills no sample"):
        mixture_index_of((1.0, {"tiny": 1}), sources=(SourceSize("tiny", 0, 0),))


def test_weights_are_shares_of_tokens_where_samples_are_padded() -> None:
    full, half = SourceSize("full", 1000, 10_000), SourceSize("half", 1000, 5_000)
    draws = mixture_index_of((1.0, {"full": 1, "half": 1}), sources=(full, half), batch=30)
    assert draws.counts() == [1000, 2000]
    assert [s["share"] for s in draws.summary()] == [0.5, 0.5]


def test_a_longer_training_begins_like_a_shorter_one() -> None:
    short, long = (mixture_index_of((1.0, {"web": 2, "code": 1}), steps=n) for n in (50, 500))
    number_B = np.arange(500)
    for ours, theirs in zip(short.locate(number_B), long.locate(number_B), strict=True):
        assert np.array_equal(ours, theirs)


def test_the_order_is_frozen() -> None:
    source_B, place_B = mixture_index_of((1.0, {"web": 5, "books": 2, "code": 3})).locate(
        np.arange(10)
    )
    assert source_B.tolist() == [0, 2, 0, 1, 0, 2, 0, 1, 0, 2]
    assert place_B.tolist() == [0, 0, 1, 0, 2, 1, 3, 1, 4, 2]


def test_more_than_four_epochs_are_warned_of() -> None:
    draws = mixture_index_of((1.0, {"web": 0.7, "books": 0.3}))
    (warning,) = repetition_warnings(draws.summary())
    assert warning.startswith("books is seen 6 times; repeated text is worth little after about 4")


@pytest.mark.parametrize("ends", [(0.5,), (0.5, 0.5, 1.0), (0.8, 0.2), (1.0, 1.0)])
def test_stages_must_rise_to_the_end(ends: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="`until` must rise from stage to stage up to 1"):
        Mixture(stages=tuple(MixtureStage(until=end, weights={"a": 1}) for end in ends))
