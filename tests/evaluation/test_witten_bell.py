import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import BadInput
from tasks.evaluation.heldout.witten_bell import byte_probabilities, witten_bell_bits_per_byte


def reference(train: bytes, heldout: bytes, order: int) -> list[float]:
    """The recursion as it is written on paper."""
    grams = [Counter(train[i : i + n + 1] for i in range(len(train) - n)) for n in range(order + 1)]

    def probability(byte: bytes, context: bytes) -> float:
        lower = probability(byte, context[1:]) if context else 1 / 256
        followers = {g: c for g, c in grams[len(context)].items() if g[:-1] == context}
        if not followers:
            return lower
        total, types = sum(followers.values()), len(followers)
        return (followers.get(context + byte, 0) + types * lower) / (total + types)

    return [
        probability(heldout[i : i + 1], heldout[max(0, i - order) : i]) for i in range(len(heldout))
    ]


few_letters = st.binary(max_size=60).map(lambda raw: bytes(b % 4 for b in raw))


@settings(deadline=None)
@given(train=few_letters, heldout=few_letters | st.binary(max_size=10), order=st.integers(0, 5))
def test_agrees_with_the_recursion(train: bytes, heldout: bytes, order: int) -> None:
    np.testing.assert_allclose(
        byte_probabilities(train, heldout, order), reference(train, heldout, order), rtol=1e-9
    )


@settings(deadline=None)
@given(train=st.binary(max_size=200), context=st.binary(min_size=3, max_size=3))
def test_the_256_next_bytes_have_probability_one(train: bytes, context: bytes) -> None:
    for start in (context, train[:3].ljust(3, b"x")):
        each = b"".join(start + bytes([b]) for b in range(256))
        following = byte_probabilities(train, each, order=3)[3::4]
        assert following.sum() == pytest.approx(1, abs=1e-12)
        assert min(following) > 0


def test_by_hand() -> None:
    # After "ab": order 0 has n(a)=n(b)=1 of 2, 2 types; "a" was followed by "b" once.
    p_b = (1 + 2 / 256) / (2 + 2)
    p_b_after_a = (1 + 1 * p_b) / (1 + 1)
    assert byte_probabilities(b"ab", b"ab", 1).tolist() == [p_b, p_b_after_a]
    assert witten_bell_bits_per_byte(b"ab", b"ab", 1) == pytest.approx(
        -(math.log2(p_b) + math.log2(p_b_after_a)) / 2, rel=1e-12
    )


def test_nothing_learnt_is_eight_bits() -> None:
    assert witten_bell_bits_per_byte(b"", b"anything") == 8.0


def test_more_context_helps_on_text() -> None:
    text = Path(pytest.__file__).read_bytes() * 2 + Path(np.__file__).read_bytes()
    bits = [witten_bell_bits_per_byte(text[:-4000], text[-4000:], n) for n in range(4)]
    assert bits == sorted(bits, reverse=True)
    assert bits[3] < 3.5


def test_no_heldout_text_is_refused() -> None:
    with pytest.raises(BadInput, match="no held-out text"):
        witten_bell_bits_per_byte(b"abc", b"")
