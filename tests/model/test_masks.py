"""Who sees whom, square by square."""

import itertools

import pytest
import torch

from model.masks import Sight, cross_sight, self_sight, single

CPU = torch.device("cpu")
DOCUMENTS = torch.tensor([[1, 1, 2, 2, 0, 0]])


def squares(sight: Sight) -> list[list[int]]:
    mask = sight.mask
    assert mask is not None
    return mask.view(mask.shape[-2:]).int().tolist()


def test_one_document_a_row_needs_no_mask():
    assert self_sight(6, 6, CPU) == Sight(causal=True)
    assert self_sight(6, 6, CPU, window=6) == Sight(causal=True)
    assert self_sight(6, 6, CPU, causal=False) == Sight()
    assert self_sight(1, 9, CPU) == Sight()
    assert single(None)
    assert single(torch.tensor([[1] * 6, [4] * 6]))
    assert not single(DOCUMENTS)


def test_masks_are_causal_inside_documents_and_never_empty():
    assert squares(self_sight(6, 6, CPU, documents_BS=DOCUMENTS)) == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [0, 0, 1, 0, 0, 0],
        [0, 0, 1, 1, 0, 0],
        [0, 0, 0, 0, 1, 0],
        [0, 0, 0, 0, 1, 1],
    ]


def test_encoders_see_all_of_a_document():
    assert squares(self_sight(6, 6, CPU, causal=False, documents_BS=DOCUMENTS)) == [
        [1, 1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [0, 0, 1, 1, 0, 0],
        [0, 0, 1, 1, 0, 0],
        [0, 0, 0, 0, 1, 1],
        [0, 0, 0, 0, 1, 1],
    ]


def test_prefix_tokens_see_each_other_and_the_rest_is_causal():
    prefix = torch.tensor([[True, True, True, False, False]])
    assert squares(self_sight(5, 5, CPU, prefix_BS=prefix)) == [
        [1, 1, 1, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0],
        [1, 1, 1, 1, 1],
    ]


def test_a_prefix_ends_with_its_document():
    prefix = torch.tensor([[True, True, False, True, True, False]])
    documents = torch.tensor([[1, 1, 1, 2, 2, 2]])
    assert squares(self_sight(6, 6, CPU, prefix_BS=prefix, documents_BS=documents)) == [
        [1, 1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [0, 0, 0, 1, 1, 0],
        [0, 0, 0, 1, 1, 0],
        [0, 0, 0, 1, 1, 1],
    ]


def test_a_window_of_two_sees_the_token_and_the_one_before_or_in_an_encoder_both_beside_it():
    assert squares(self_sight(4, 4, CPU, window=2)) == [
        [1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1],
    ]  # fmt: skip
    assert squares(self_sight(4, 4, CPU, window=2, causal=False)) == [
        [1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("causal", "window", "packed"), itertools.product([True, False], [None, 2, 4], [True, False])
)
def test_later_queries_see_what_they_would_see_among_all(causal, window, packed):
    documents = DOCUMENTS if packed else None
    about = {"causal": causal, "window": window, "documents_BS": documents}
    whole = self_sight(6, 6, CPU, **about).written_out(6, 6, CPU)
    last = self_sight(2, 6, CPU, **about).written_out(2, 6, CPU)
    full = torch.ones(6, 6, dtype=torch.bool)
    whole, last = (
        full if m is None else m.expand(1, 1, *m.shape[-2:])[0, 0] for m in (whole, last)
    )
    assert torch.equal(whole[-2:], last[-2:])


def test_a_decoder_document_sees_the_encoder_document_of_its_number():
    sight = cross_sight(torch.tensor([[1, 2, 2, 0]]), torch.tensor([[1, 1, 2]]))
    assert squares(sight) == [[1, 1, 0], [0, 0, 1], [0, 0, 1], [1, 1, 1]]


def test_without_numbers_a_decoder_sees_all_but_padding():
    assert squares(cross_sight(None, torch.tensor([[1, 1, 0]]))) == [[1, 1, 0]]
    assert cross_sight(None, None) == Sight()


def test_a_bias_is_added_where_something_is_seen():
    bias = torch.tensor([[[1.0, 2, 3], [4, 5, 6], [7, 8, 9]]])
    inf = float("-inf")
    assert Sight(causal=True).biased(bias).mask[0, 0].tolist() == [
        [1, inf, inf], [4, 5, inf], [7, 8, 9],
    ]  # fmt: skip
    assert Sight().biased(bias).mask[0, 0].tolist() == bias[0].tolist()
