"""The signs that spaCy's English tokenizer takes off a word, or cuts it at.

Each kernel looks at the characters from `low` to `high` and says how many of them are one sign.
"""

import numpy as np

from tasks.data.filtering.alphabet import (
    BEFORE_STOP,
    DIGIT,
    ICON,
    LETTER,
    LOWER,
    PREFIX,
    QUOTE,
    SUFFIX,
    UPPER,
    Codes,
    Kinds,
)
from tasks.data.filtering.lexicon import LONGEST_UNIT, UNIT, Lexicon, hash_of, known
from tasks.data.kernels import kernel


@kernel
def prefix_length(codes: Codes, kinds: Kinds, low: int, high: int) -> int:
    """Characters that come off the front."""
    first = codes[low]
    if kinds[low] & PREFIX:
        return 1
    if first == ord("."):
        dots = 1
        while low + dots < high and codes[low + dots] == ord("."):
            dots += 1
        return dots if dots > 1 else 0
    if first == ord("+"):
        return 0 if low + 1 < high and kinds[low + 1] & DIGIT else 1
    if (first == ord("C") or first == ord("A")) and low + 1 < high and codes[low + 1] == ord("$"):
        return 2
    if first == ord("U") and low + 2 < high and codes[low + 1] == ord("S"):
        return 3 if codes[low + 2] == ord("$") else 0
    return 0


@kernel
def suffix_length(codes: Codes, kinds: Kinds, low: int, high: int, lexicon: Lexicon) -> int:
    """Characters that come off the back; of several ways the one that takes most."""
    if low >= high:
        return 0
    last, before = codes[high - 1], codes[high - 2] if high - 2 >= low else np.uint32(0)
    if last == ord("."):
        return stop_length(codes, kinds, low, high)
    if (last == ord("s") or last == ord("S")) and (before == ord("'") or before == ord("’")):
        return 2
    if last == ord("…") and before == ord("…"):
        return 2
    if kinds[high - 1] & SUFFIX:
        return 1
    for length in range(min(LONGEST_UNIT, high - low - 1), 0, -1):
        after_digit = kinds[high - length - 1] & DIGIT and not kinds[high - length] & DIGIT
        if after_digit and known(lexicon, hash_of(codes, high - length, high)) & UNIT:
            return length
    return 1 if last == ord("+") and high - 2 >= low and kinds[high - 2] & DIGIT else 0


@kernel
def stop_length(codes: Codes, kinds: Kinds, low: int, high: int) -> int:
    """Full stops that come off the back: all of several, one after what can end a sentence."""
    dots = 1
    while high - dots > low and codes[high - dots - 1] == ord("."):
        dots += 1
    if dots > 1:
        return dots
    if high - 2 < low:
        return 0
    if kinds[high - 2] & BEFORE_STOP:
        return 1
    return 1 if high - 3 >= low and kinds[high - 2] & kinds[high - 3] & UPPER else 0


@kernel
def infix_length(codes: Codes, kinds: Kinds, at: int, low: int, high: int) -> int:
    """Characters of the sign at `at` that parts what is around it; 0 when it does not."""
    kind, code = kinds[at], codes[at]
    if kind & ICON or code == ord("…"):
        return 1
    length = 1
    if code == ord("."):
        while at + length < high and codes[at + length] == ord("."):
            length += 1
        if length > 1:
            return length
    if at == low or at + 1 >= high:
        return 0
    left, right = kinds[at - 1], kinds[at + 1]
    if code == ord("."):
        return 1 if left & (LOWER | QUOTE) and right & (UPPER | QUOTE) else 0
    operator = code == ord("+") or code == ord("*") or code == ord("^") or code == ord("-")
    if operator and left & DIGIT and (right & DIGIT or codes[at + 1] == ord("-")):
        return 1
    if code == ord(","):
        return 1 if left & LETTER and right & LETTER else 0
    if not left & (LETTER | DIGIT):
        return 0
    if code == ord(":") or code == ord("<") or code == ord(">") or code == ord("="):
        return 1 if right & LETTER else 0
    if code == ord("/") or code == ord("~") or code == ord("–"):
        return 1 if right & LETTER else 0
    if code == ord("-") or code == ord("—"):
        while at + length < high and codes[at + length] == code:
            length += 1
        most = 3 if code == ord("-") else 2
        return (
            length if length <= most and at + length < high and kinds[at + length] & LETTER else 0
        )
    return 0
