"""Packing: where each example lands, and the order samples are drawn in."""

from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.config import ModelConfig
from model.objectives.modules import CausalLM
from model.transformer import Transformer
from tasks.tuning.supervised import pack, rows_of, sample_numbers


def test_two_examples_share_a_row_and_a_third_starts_the_next() -> None:
    examples = [([5, 6, 7], [-100, 7, 0]), ([8, 9], [9, 0]), ([4, 4], [4, 0])]
    batch = pack(examples, context=6, pad=1)
    assert batch["inputs"].tolist() == [[5, 6, 7, 8, 9, 1], [4, 4, 1, 1, 1, 1]]
    assert batch["targets"].tolist() == [
        [-100, 7, 0, 9, 0, -100],
        [4, 0, -100, -100, -100, -100],
    ]
    assert batch["documents"].tolist() == [[1, 1, 1, 2, 2, 0], [1, 1, 0, 0, 0, 0]]
    assert batch["positions"].tolist() == [[0, 1, 2, 0, 1, 0], [0, 1, 0, 0, 0, 0]]


@pytest.mark.parametrize("positions", ["rope", "learned", "alibi"])
def test_examples_of_one_row_do_not_see_each_other(positions: Literal["rope", "learned"]) -> None:
    torch.manual_seed(0)
    shape = {"width": 16, "depth": 2, "heads": 2, "kv_heads": 2, "head_dim": 8, "ffn_width": 32}
    config = ModelConfig(vocab_size=30, context=24, positions=positions, **shape)
    module = CausalLM(Transformer(config)).eval()
    random = np.random.default_rng(0)
    examples = []
    for length in (5, 9, 3, 7):
        ids = random.integers(2, 30, length + 1).tolist()
        examples.append((ids[:-1], [-100, *ids[2:]]))
    packed = pack(examples, context=24, pad=1)
    assert len(packed["inputs"]) == 1
    together = module.token_losses(**{k: torch.from_numpy(v) for k, v in packed.items()})[0]
    alone = [
        module.token_losses(torch.tensor([inputs]), torch.tensor([targets]))[0]
        for inputs, targets in examples
    ]
    assert torch.allclose(together, torch.cat(alone), atol=1e-5)


@settings(deadline=None)  # a busy machine is not a failure
@given(st.lists(st.integers(1, 16), max_size=60))
def test_every_example_has_one_place_and_no_row_overflows(lengths: list[int]) -> None:
    rows = rows_of(lengths, 16)
    assert [n for row in rows for n in row] == list(range(len(lengths)))
    assert all(sum(lengths[n] for n in row) <= 16 for row in rows)


def test_an_example_longer_than_a_row_is_a_programming_error() -> None:
    with pytest.raises(AssertionError, match="example 1 has 17 tokens, a row 16"):
        rows_of([3, 17], 16)


@settings(deadline=None)  # a busy machine is not a failure
@given(st.integers(0, 40), st.integers(1, 40), st.integers(1, 12), st.integers(0, 3))
def test_samples_are_a_function_of_their_number(
    first: int, count: int, samples: int, seed: int
) -> None:
    whole = sample_numbers(0, first + count, samples, seed)
    assert np.array_equal(whole[first:], sample_numbers(first, count, samples, seed))
    for epoch in range(len(whole) // samples):
        assert sorted(whole[epoch * samples : (epoch + 1) * samples]) == list(range(samples))


def test_epochs_and_seeds_differ() -> None:
    first, second = sample_numbers(0, 100, 100, 0), sample_numbers(100, 100, 100, 0)
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, sample_numbers(0, 100, 100, 1))
