"""Noises of a denoising autoencoder: the network reads the noised text and writes the clean one.

Lewis et al. 2020 (BART), section 2.2. Letters: N tokens of a text, S spans or sentences.
"""

from collections.abc import Sequence

import numpy as np

from model.objectives.lengths import Rates, share


def delete_tokens(tokens_N: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """The text without some tokens; where they were is not said."""
    return np.delete(tokens_N, positions)


def choose_infilling(
    tokens: int, rates: Rates, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Starts and lengths `[S]` of spans that together hide a share of the tokens.

    Lengths are drawn from a Poisson distribution until they reach the share, the last being cut to
    it; some are 0. Between two spans lies at least one token that is shown.
    """
    hidden = share(tokens, rates.rate, most=tokens - 1)
    draws = random.poisson(rates.span, max(8, 4 * hidden))
    while draws.sum() < hidden:
        draws = np.concatenate((draws, random.poisson(rates.span, len(draws))))
    totals = np.cumsum(draws)
    spans = int(np.searchsorted(totals, hidden)) + 1
    lengths_S = np.diff(np.minimum(totals[:spans], hidden), prepend=0)
    gaps = tokens - hidden + 1  # a span lies before a shown token or behind the last
    lengths_S = lengths_S[np.argsort(lengths_S == 0, kind="stable")][:gaps]
    lengths_S = random.permutation(lengths_S)
    shown_S = np.sort(random.choice(gaps, len(lengths_S), replace=False))
    return shown_S + np.cumsum(lengths_S) - lengths_S, lengths_S


def infill(
    tokens_N: np.ndarray, starts_S: np.ndarray, lengths_S: np.ndarray, mask: int
) -> np.ndarray:
    """The text with one mask for each span, however long; a span of 0 puts one between tokens."""
    parts: list[np.ndarray | Sequence[int]] = []
    shown = 0
    for start, length in zip(starts_S, lengths_S, strict=True):
        parts += [tokens_N[shown:start], [mask]]
        shown = start + length
    return np.concatenate([*parts, tokens_N[shown:]]).astype(np.int64)


def sentences(tokens_N: np.ndarray, ends_sentence_V: np.ndarray) -> list[np.ndarray]:
    """The sentences of a text; the last may lack its end."""
    ends = np.flatnonzero(ends_sentence_V[tokens_N[:-1]]) + 1
    return np.split(tokens_N, ends)


def reorder(
    parts: Sequence[np.ndarray] | np.ndarray, order: Sequence[int] | np.ndarray
) -> np.ndarray:
    """Parts of a text, sentences or tokens, in another order: part `order[0]` comes first."""
    return np.concatenate([parts[i] for i in order])


def rotate(tokens_N: np.ndarray, start: int) -> np.ndarray:
    """The text from token `start` on, then what lies before it."""
    return np.roll(tokens_N, -start)
