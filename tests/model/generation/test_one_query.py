"""Attention of one query a row by our own kernel is that of the library."""

import itertools

import pytest
import torch

from model import attention
from model.config import from_depth
from model.generation import one_query
from model.masks import Sight

ROWS, ROOM, INNER = 3, 40, 12


def masks(heads: int, keys: int) -> dict[str, torch.Tensor | None]:
    seen_B11S = torch.rand(ROWS, 1, 1, keys) < 0.6
    seen_B11S[..., -1] = True
    bias_1H1S = torch.randn(1, heads, 1, keys)
    return {
        "all": None,
        "rows": seen_B11S,
        "window": (torch.arange(keys) >= keys - 5)[None],
        "heads": bias_1H1S,
        "both": bias_1H1S.where(seen_B11S, -torch.inf),
    }


@pytest.mark.parametrize("name", masks(1, 1))
@pytest.mark.parametrize("keys", [1, 3, 4, 37])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 2), (4, 1)])
def test_one_query_sees_what_the_library_lets_it_see(
    heads, kv_heads, keys, name, threads, monkeypatch
):
    config = from_depth(
        1, vocab_size=9, context=64, width=heads * INNER, heads=heads, kv_heads=kv_heads
    )
    k, v = (torch.randn(ROWS, kv_heads, ROOM, INNER)[:, :, :keys] for _ in range(2))
    q = torch.randn(ROWS, 1, heads + 1, INNER).transpose(1, 2)[:, :heads]
    sight = Sight(masks(heads, keys)[name])
    expected = attention.attend(config, q, k, v, sight, False)
    for count, alone in itertools.product((1, 2, 3), (True, False)):
        threads(count)
        monkeypatch.setattr(one_query, "ALONE", 2**20 if alone else 0)
        got = one_query.attend(config, q, k, v, sight, False)
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)


def test_more_queries_and_other_layouts_are_the_librarys():
    config = from_depth(1, vocab_size=9, context=64, width=24, heads=2)
    k, v = (torch.randn(ROWS, 2, ROOM, INNER) for _ in range(2))
    for q, keys, values in [
        (torch.randn(ROWS, 2, 2, INNER), k, v),
        (torch.randn(ROWS, 2, 1, INNER), k.mT.contiguous().mT, v),
        (torch.randn(ROWS, 2, 1, INNER).bfloat16(), k.bfloat16(), v.bfloat16()),
    ]:
        expected = attention.attend(config, q, keys, values, Sight(), False)
        assert torch.equal(one_query.attend(config, q, keys, values, Sight(), False), expected)
