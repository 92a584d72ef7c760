import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.data.filtering.byte_model import MAX_ORDER, ByteModel
from tasks.evaluation.heldout.witten_bell import byte_probabilities

ENGLISH = (
    "the quick brown fox jumps over the lazy dog and the dog does not mind the fox at all. " * 9
)


def texts(*values):
    return pa.array(values, pa.large_string())


@given(st.text(min_size=1), st.text(min_size=1), st.integers(0, MAX_ORDER))
def test_it_is_the_model_of_the_baseline(train, text, order):
    train, text = (t.encode(errors="ignore") or b"x" for t in (train, text))
    expected = -np.log2(byte_probabilities(train, text, order)).mean()
    as_text = pa.array([train], pa.large_binary()).view(pa.large_string())
    model = ByteModel.train(as_text, order)
    (found,) = model.bits_per_byte(pa.array([text], pa.large_binary()).view(pa.large_string()))
    assert found == pytest.approx(expected, abs=1e-9)


def test_a_text_like_the_reference_costs_fewer_bits():
    model = ByteModel.train(texts(ENGLISH), 4)
    like, unlike = model.bits_per_byte(texts("the lazy fox jumps over the dog", "QZ7#_9xk%%@!~"))
    assert like < 2 < 7 < unlike


def test_the_score_of_a_text_does_not_depend_on_its_neighbours():
    model = ByteModel.train(texts(ENGLISH, "second text"), 5)
    together = model.bits_per_byte(texts("one fox", "", "two dogs"))
    assert together[2] == model.bits_per_byte(texts("two dogs"))[0]
    assert together[1] == 0


def test_it_survives_a_file(tmp_path):
    model = ByteModel.train(texts(ENGLISH), 3)
    model.save(tmp_path / "model.npz")
    again = ByteModel.load(tmp_path / "model.npz")
    assert again.bits_per_byte(texts("a fox")) == model.bits_per_byte(texts("a fox"))
