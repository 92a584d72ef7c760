"""Hide single tokens, or one span of them, behind the mask token: BERT and MASS.

Letters: N tokens of a text, K chosen positions.
"""

import numpy as np

from model.objectives.lengths import share
from model.objectives.rows import IGNORED

MASKED, RANDOM = 0.8, 0.1
"""Of the chosen tokens: shares replaced by the mask, and by any token. The others are kept."""


def choose_positions(
    eligible_N: np.ndarray, rate: float, random: np.random.Generator
) -> np.ndarray:
    """A share of the positions where `eligible_N` is True, rounded, at least one; in order."""
    candidates = np.flatnonzero(eligible_N)
    count = share(len(candidates), rate) if len(candidates) else 0
    return np.sort(random.choice(candidates, count, replace=False))


def choose_replacements(
    tokens_K: np.ndarray, mask: int, ordinary: np.ndarray, random: np.random.Generator
) -> np.ndarray:
    """80 % mask, 10 % a random token, 10 % the token itself (Devlin et al. 2019, section 3.1)."""
    lot_K = random.random(len(tokens_K))
    random_K = random.choice(ordinary, len(tokens_K))
    kept_K = np.where(lot_K < MASKED + RANDOM, random_K, tokens_K)
    return np.where(lot_K < MASKED, mask, kept_K)


def mask_tokens(
    tokens_N: np.ndarray, positions_K: np.ndarray, replacements: np.ndarray | int
) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets of a masked LM: every chosen position has loss, the kept ones too."""
    inputs_N, targets_N = tokens_N.copy(), np.full_like(tokens_N, IGNORED)
    inputs_N[positions_K] = replacements
    targets_N[positions_K] = tokens_N[positions_K]
    return inputs_N, targets_N


def choose_span(tokens: int, rate: float, random: np.random.Generator) -> tuple[int, int]:
    """Start and length of one span."""
    length = share(tokens, rate)
    return int(random.integers(tokens - length + 1)), length


def mask_span(
    tokens_N: np.ndarray, start: int, length: int, mask: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Encoder inputs, decoder inputs and targets `[N]` of MASS (Song et al. 2019, section 3.2).

    What the encoder sees is hidden from the decoder, and the other way round: of the tokens before
    each target the decoder is shown those of the span.
    """
    span = np.s_[start : start + length]
    inputs_N, targets_N = mask_tokens(tokens_N, np.arange(start, start + length), mask)
    decoder_N = np.full_like(tokens_N, mask)
    decoder_N[span][1:] = tokens_N[span][:-1]
    return inputs_N, decoder_N, targets_N
