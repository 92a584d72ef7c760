"""What is taken for a text, and what is none: rules without a model.

Of instructions Self-Instruct's (Wang et al. 2023, section 2.2): none of too few or too many words,
none about what a model of text cannot see.
"""

import re
from collections.abc import Sequence

from tasks.synthesis.pairs import Pair, marked

PREAMBLE = re.compile(
    r"\A\W*(?:sure|certainly|of course|okay|ok|here(?:'s| is| are)|below (?:is|are))\b"
    r"[^\n]{0,160}:\W*\n+",
    re.IGNORECASE,
)
REFUSED = re.compile(
    r"\A\W*(?:i(?:'m| am) (?:sorry|unable|not able)|sorry\b|i can(?:no|')t\b|i won't\b|as an ai\b"
    r"|unfortunately, i\b)",
    re.IGNORECASE,
)
UNSEEN = re.compile(
    r"\b(?:images?|pictures?|photos?|graphs?|figures?|diagrams?|videos?|draw|plots?"
    r"|(?:the|this) (?:text|passage|document|article|excerpt))\b",
    re.IGNORECASE,
)
FEWEST_WORDS, MOST_WORDS = 3, 150


def bare(text: str) -> str:
    """A reply without the words that announce it."""
    return PREAMBLE.sub("", text.strip(), count=1).strip()


def fault_of_text(text: str, passage: str, shortest: float, longest: float) -> str | None:
    """Why a rephrased text is not taken: `refusal`, `too_short` or `too_long` for its passage."""
    if REFUSED.match(text):
        return "refusal"
    if not text or len(text) < shortest * len(passage):
        return "too_short"
    return "too_long" if len(text) > longest * len(passage) else None


def fault_of_asked(asked: str) -> str | None:
    """Why a question or instruction is not taken."""
    if REFUSED.match(asked):
        return "refusal"
    words = len(asked.split())
    if words < FEWEST_WORDS and len(asked) < 4 * FEWEST_WORDS:
        return "too_short"
    if words > MOST_WORDS:
        return "too_long"
    return "about_unseen" if UNSEEN.search(asked) else None


def fault_of_pair(pair: Pair) -> str | None:
    """Why a pair is not taken: `empty_answer`, an `echo` of what is asked, or a reason of
    `fault_of_asked`; `marked` where it could not be read back.
    """
    if fault := fault_of_asked(pair.asked):
        return fault
    if not pair.answer.strip():
        return "empty_answer"
    if REFUSED.match(pair.answer):
        return "refusal"
    if pair.answer.casefold() == pair.asked.casefold():
        return "echo"
    return "marked" if marked(pair.asked) or marked(pair.answer) else None


def foreign(texts: Sequence[str], passages: Sequence[str]) -> list[str | None]:
    """For each text the code of its language where that is not its passage's."""
    from tasks.data.filtering.languages import identify

    found = identify([*texts, *passages])
    codes = [code for code, _ in found]
    both = zip(codes[: len(texts)], codes[len(texts) :], strict=True)
    return [own or "unknown" if own != theirs else None for own, theirs in both]
