import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.tokens.permutation import permute


@settings(deadline=None)
@given(size=st.integers(1, 3000), seed=st.integers(), epoch=st.integers(0, 1 << 40))
def test_every_index_comes_exactly_once(size: int, seed: int, epoch: int) -> None:
    images = permute(np.arange(size), size, seed, epoch)
    assert np.array_equal(np.sort(images), np.arange(size))


@settings(deadline=None)
@given(size=st.integers(1, 1 << 62), data=st.data())
def test_an_index_goes_to_the_same_place_alone(size: int, data: st.DataObject) -> None:
    index = np.array(data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=20)))
    images = permute(index, size, 7)
    assert ((images >= 0) & (images < size)).all()
    alone = [int(permute(np.array([i]), size, 7)[0]) for i in index]
    assert alone == images.tolist()


def test_keys_give_different_orders_and_order_is_frozen() -> None:
    first = permute(np.arange(10), 10, 0, 0).tolist()
    assert first != permute(np.arange(10), 10, 0, 1).tolist()
    assert first != permute(np.arange(10), 10, 1, 0).tolist()
    assert first == [5, 0, 7, 6, 4, 8, 9, 1, 3, 2], (
        "training runs of earlier versions would see their samples reordered"
    )


def test_every_place_is_as_likely_as_any() -> None:
    size, keys = 10, 5000
    images = np.stack([permute(np.arange(size), size, key) for key in range(keys)])
    for pair in (images[:, 0], images[:, 9], (images[:, 1] - images[:, 0]) % size - 1):
        counts = np.bincount(pair)
        expected = keys / len(counts)
        assert len(counts) >= size - 1
        # Chi-square with 9 degrees of freedom exceeds 33.7 once in ten thousand times.
        assert ((counts - expected) ** 2 / expected).sum() < 33.7


@pytest.mark.parametrize("size", [101, 1024])
def test_images_are_spread_like_a_random_permutation(size: int) -> None:
    displaced, neighbours, keys = 0, 0, 200
    for key in range(keys):
        images = permute(np.arange(size), size, key)
        displaced += int((images != np.arange(size)).sum())
        neighbours += int((np.diff(images) == 1).sum())
    # A random permutation has one fixed point and almost one ascending neighbour pair on average.
    assert 0.7 < size - displaced / keys < 1.3
    assert 0.7 < neighbours / keys < 1.3
