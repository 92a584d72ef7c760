"""Permuted language modelling (XLNet, Yang et al. 2019, section 2.2).

The likelihood is factorised along a sampled order z: log p(x) = sum_t log p(x_z[t] | x_z[<t]).

A plain causal network has a row with the tokens in that order, each with its position in the text.
In front of a token that is predicted stands a query: the mask token at the position of the token to
come. Under the causal triangle the query sees x_z[<t], the positions, and earlier queries, which
hold nothing but positions; so the factorisation is exact, and queries and contents are XLNet's two
streams in one.

An encoder has XLNet's own two streams (section 2.3): the text as it stands, and behind it a query
for each token that is predicted. Who sees whom follows from the order (`masks.in_order`); tokens
that are not predicted see each other, as in the released code. Both streams go through the same
weights, so one pass over the row is both.

Letters: N tokens of a text, K of them predicted, M = N + K tokens of a row.
"""

import numpy as np

from model.objectives.rows import IGNORED, Row


def permuted_row(
    tokens_N: np.ndarray, order_N: np.ndarray, predicted: int, class_: int, mask: int
) -> Row:
    """The last `predicted` tokens in an order, each from those before it; `order_N[0]` comes first.

    The class token is seen by all, at position 0; text begins at 1. The last token of the order is
    a target only.
    """
    shown = len(tokens_N) - predicted
    query, content = order_N[shown:], order_N[shown:]
    places = np.concatenate((order_N[:shown], np.stack((query, content), 1).ravel()[:-1]))
    asks = np.zeros(len(places), bool)
    asks[shown::2] = True
    inputs = np.where(asks, mask, tokens_N[places])
    targets = np.where(asks, tokens_N[places], IGNORED)
    return {
        "inputs": np.concatenate(([class_], inputs)),
        "targets": np.concatenate(([IGNORED], targets)),
        "documents": np.ones(len(places) + 1, np.int64),
        "positions": np.concatenate(([0], places + 1)),
    }


def two_stream_row(
    tokens_N: np.ndarray, order_N: np.ndarray, predicted: int, cut: int, class_: int, mask: int
) -> Row:
    """The text, and a query for each of the last `predicted` tokens of an order.

    What stands behind `cut` tokens is the second of two segments (section 2.5).
    """
    places_K = order_N[len(tokens_N) - predicted :]
    rank_N = np.zeros(len(tokens_N), np.int64)
    rank_N[places_K] = np.arange(1, predicted + 1)
    at = np.concatenate(([0], np.arange(1, len(tokens_N) + 1), places_K + 1))
    length = len(tokens_N) + 1
    return {
        "inputs": np.concatenate(([class_], tokens_N, np.full(predicted, mask))),
        "targets": np.concatenate((np.full(length, IGNORED), tokens_N[places_K])),
        "documents": np.ones(length + predicted, np.int64),
        "positions": at,
        "segments": (at > cut).astype(np.int64),
        "order": np.concatenate(([0], rank_N, -rank_N[places_K])),
    }
