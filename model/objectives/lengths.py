"""How much text fills a row, and how long its target gets: plain arithmetic, before any token.

Rows of a training all have one length, whatever is drawn; these are the lengths that always do.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Share of the tokens that is hidden, and the mean length of a hidden span in tokens."""

    rate: float = 0.15
    span: float = 3.0


@dataclass(frozen=True, kw_only=True)
class Denoiser:
    """One task of a mixture, announced by its mode token: spans to fill, or a text to continue."""

    mode: str
    rate: float
    span: float | None = None
    """None: the last `rate` of the text is one span, to be continued."""


# Tay et al. 2022 (UL2), table 1 and section 3.1.2: R is T5's, X hides long spans or many tokens.
UL2 = (
    Denoiser(mode="denoise_r", span=3, rate=0.15),
    Denoiser(mode="denoise_r", span=8, rate=0.15),
    Denoiser(mode="denoise_x", span=3, rate=0.5),
    Denoiser(mode="denoise_x", span=8, rate=0.5),
    Denoiser(mode="denoise_x", span=64, rate=0.15),
    Denoiser(mode="denoise_x", span=64, rate=0.5),
    Denoiser(mode="denoise_s", rate=0.25),
)


def window(objective: str, family: str, context: int, rates: Rates) -> int:
    """Tokens of text in one sample, for rows of `context` tokens.

    Raises `ValueError` for a context that leaves no room for text.
    """
    tokens = _window(objective, family, context, rates)
    if tokens < 2:
        raise ValueError(f"a context of {context} tokens has no room for {objective}; raise it")
    return tokens


def _window(objective: str, family: str, context: int, rates: Rates) -> int:
    if objective == "causal":
        return context
    if objective in ("next_sentence", "sentence_order"):
        return context - 3  # a class token and two separators
    if objective == "sentence_comparison":
        return context - 2
    if objective == "permuted":
        # The class token, each token once, and a query for each predicted one. In a decoder the
        # last to be predicted is left out, as none sees it.
        room = context - (family == "encoder")
        return _largest(lambda n: n + share(n, rates.rate) <= room, context)
    if objective == "span_corruption":
        return _span_window(family, context, rates)
    if objective == "mixture_of_denoisers":
        windows = [denoiser_window(d, family, context) for d in UL2]
        return max(windows) if all(windows) else 0
    return context - 1  # a class token


def target_length(objective: str, context: int, rates: Rates) -> int:
    """Tokens of an encoder-decoder's target, end token included: the length of its rows."""
    family = "encoder_decoder"
    tokens = window(objective, family, context, rates)
    if objective == "span_corruption":
        return span_lengths(tokens, rates)[1]
    if objective == "mixture_of_denoisers":
        return max(_denoiser_lengths(d, denoiser_window(d, family, context))[1] for d in UL2)
    if objective in ("prefix", "mass"):
        return tokens
    return tokens + 1


def sentinels(objective: str, family: str, context: int, rates: Rates) -> int:
    """Sentinels needed: one a span, and the closing one."""
    if objective == "span_corruption":
        return span_counts(window(objective, family, context, rates), rates)[1] + 1
    if objective == "mixture_of_denoisers":
        counts = (
            span_counts(denoiser_window(d, family, context), Rates(rate=d.rate, span=d.span))[1]
            for d in UL2
            if d.span
        )
        return max(counts) + 1
    return 0


def span_counts(tokens: int, rates: Rates) -> tuple[int, int]:
    """Hidden tokens of a text, and spans they make up (Raffel et al. 2020, T5's own code).

    Between spans there is at least one token, and one before the first.
    """
    hidden = share(tokens, rates.rate, most=tokens - 1)
    spans = max(1, round(hidden / rates.span))
    return hidden, min(spans, hidden, tokens - hidden)


def span_lengths(tokens: int, rates: Rates) -> tuple[int, int]:
    """Tokens of source and target under span corruption, sentinels and end tokens included."""
    hidden, spans = span_counts(tokens, rates)
    return tokens - hidden + spans + 1, hidden + spans + 2


@cache
def denoiser_window(denoiser: Denoiser, family: str, context: int) -> int:
    """Tokens of text that one task of a mixture takes, its mode token in front."""
    fits = _fits(family, context - 1, lambda n: _denoiser_lengths(denoiser, n))
    return _largest(fits, 4 * context)


def _denoiser_lengths(denoiser: Denoiser, tokens: int) -> tuple[int, int]:
    if denoiser.span is None:
        hidden = share(tokens, denoiser.rate, most=tokens - 1)
        return tokens - hidden, hidden
    return span_lengths(tokens, Rates(rate=denoiser.rate, span=denoiser.span))


def _span_window(family: str, context: int, rates: Rates) -> int:
    return _largest(_fits(family, context, lambda n: span_lengths(n, rates)), 4 * context)


def _fits(
    family: str, context: int, lengths: Callable[[int], tuple[int, int]]
) -> Callable[[int], bool]:
    """Whether a text fits: an encoder takes the source, a decoder the target behind it as well."""

    def fits(tokens: int) -> bool:
        source, target = lengths(tokens)
        longest = max(source, target) if family == "encoder_decoder" else source + target - 1
        return longest <= context

    return fits


def _largest(fits: Callable[[int], bool], most: int) -> int:
    """The largest number from 2 to `most` that fits; 0 when none does."""
    return next((n for n in range(most, 1, -1) if fits(n)), 0)


def share(tokens: int, rate: float, most: int | None = None) -> int:
    """A share of some tokens, rounded: at least one of them, at most all or `most`."""
    return min(max(1, round(tokens * rate)), tokens if most is None else most)
