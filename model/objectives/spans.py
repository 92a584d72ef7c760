"""Spans of tokens, replaced by a sentinel each and told behind it: T5's span corruption.

Raffel et al. 2020, section 3.1.4 and figure 2. Letters: N tokens of a text, S spans.
"""

import numpy as np
from numpy.typing import ArrayLike

from model.objectives.lengths import Rates, span_counts


def choose_spans(
    tokens: int, rates: Rates, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Starts and lengths `[S]` of spans, of a number that depends on the rates alone.

    As in T5's code, what is shown and what is hidden are each cut into S parts at random places,
    and laid in turn, a shown part first.
    """
    hidden, spans = span_counts(tokens, rates)
    lengths_S = _parts(hidden, spans, random)
    shown_S = _parts(tokens - hidden, spans, random)
    starts_S = np.cumsum(shown_S) + np.cumsum(lengths_S) - lengths_S
    return starts_S, lengths_S


def _parts(tokens: int, parts: int, random: np.random.Generator) -> np.ndarray:
    """Tokens in parts of at least one, all ways to cut them being equally likely."""
    cuts = np.sort(random.choice(np.arange(1, tokens), parts - 1, replace=False))
    return np.diff(cuts, prepend=0, append=tokens)


def corrupt_spans(
    tokens_N: np.ndarray,
    starts_S: np.ndarray,
    lengths_S: np.ndarray,
    sentinels: np.ndarray,
    end: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Source and target: the text with a sentinel for each span; each sentinel with its span.

    With an `end` token, as T5 has it, that token ends both, and the target closes with one more
    sentinel before it.
    """
    source: list[ArrayLike] = []
    target: list[ArrayLike] = []
    shown = 0
    for start, length, sentinel in zip(starts_S, lengths_S, sentinels, strict=False):
        source += [tokens_N[shown:start], [sentinel]]
        shown = start + length
        target += [[sentinel], tokens_N[start:shown]]
    source.append(tokens_N[shown:])
    if end is not None:
        source.append([end])
        target.append([sentinels[len(starts_S)], end])
    return np.concatenate(source).astype(np.int64), np.concatenate(target).astype(np.int64)
