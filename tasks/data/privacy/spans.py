"""An instance of personal data as a span of a text, and rules that all finders share."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

# In this order: where two kinds overlap, the earlier one is meant.
KINDS = (
    "secret",
    "email",
    "iban",
    "card",
    "national_id",
    "ip",
    "phone",
    "address",
    "name",
)
# A number with its separators: groups of digits, one to three separators between them.
RUN = re.compile(r"(?<![A-Za-z0-9_])[0-9]+(?:[ ()./+-]{1,3}[0-9]+)*")
UNSPACED = "\u2e80"  # from here on scripts write words without spaces (Chinese, kana)


class Span(NamedTuple):
    """Characters (bytes, where the text is bytes) `start` to `end` are one instance of `kind`."""

    start: int
    end: int
    kind: str


def settle(spans: Iterable[Span]) -> list[Span]:
    """In text order, none overlapping: of two that overlap the earlier kind of `KINDS` stays, of
    one kind the one that starts first, then the longest.
    """
    rank = {kind: place for place, kind in enumerate(KINDS)}
    chosen: list[Span] = []
    for group in _clusters(sorted(set(spans))):
        taken: list[Span] = []
        for span in sorted(group, key=lambda s: (rank[s.kind], s.start, -s.end)):
            if all(span.end <= other.start or other.end <= span.start for other in taken):
                taken.append(span)
        chosen += sorted(taken)
    return chosen


def _clusters(spans: Sequence[Span]) -> list[list[Span]]:
    """Spans in order, as lists that do not touch one another."""
    clusters: list[list[Span]] = []
    end = -1
    for span in spans:
        if span.start >= end:
            clusters.append([])
        clusters[-1].append(span)
        end = max(end, span.end)
    return clusters


def substitute(text: str, spans: Iterable[Span], replacement: Callable[[str, str], str]) -> str:
    """The text with each span replaced by `replacement(kind, value)`."""
    parts, done = [], 0
    for start, end, kind in spans:
        parts += [text[done:start], replacement(kind, text[start:end])]
        done = end
    return "".join([*parts, text[done:]])


def is_alone(text: str, start: int, end: int) -> bool:
    """Whether no letter, digit or decimal point continues the number on either side."""
    before, after = text[max(0, start - 1) : start], text[end : end + 2]
    if before in ("_", ".", "+") or (before.isalnum() and before < UNSPACED):
        return False
    if after[:1] == "_" or (after[:1].isalnum() and after[:1] < UNSPACED):
        return False
    return not (after[:1] == "." and after[1:].isdigit())


def digits_of(text: str) -> str:
    """The ASCII digits of a text."""
    return "".join(c for c in text if "0" <= c <= "9")
