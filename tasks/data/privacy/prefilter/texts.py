"""The pass over texts: it stops at digits and signs, and at words that a digit is part of."""

from tasks.data.kernels import kernel
from tasks.data.privacy.prefilter.marks import ADDRESS, IBAN, NATIONAL_ID, SECRET, is_digit, mark
from tasks.data.privacy.prefilter.numbers import number
from tasks.data.privacy.prefilter.plain import entity
from tasks.data.privacy.prefilter.signs import sign
from tasks.data.privacy.prefilter.tables import (
    AMPERSAND,
    DIGIT,
    FOREIGN,
    STOP_BITS,
    VALUE,
    WORD,
    triple,
)

TOKEN_BACK = 64


@kernel
def prefilter_texts(
    data, offsets, wanted, foreign, plain, marks, flags, prefixes, lengths, words, names
):
    """Mark all texts; those that are in another than plain spelling have no mark, and are noted."""
    marks[0, 0] = 0
    for text in range(len(foreign)):
        first = marks[0, 0]
        if not _prefilter(
            data, offsets[text], offsets[text + 1], plain, wanted, marks,
            flags, prefixes, lengths, words, names,
        ):  # fmt: skip
            foreign[text] = True
            # What was marked so far is dropped: the text is gone
            # through again in its plain spelling.
            marks[0, 0] = first
        for k in range(first + 1, min(marks[0, 0] + 1, len(marks))):
            marks[k, 0] = text


@kernel
def _prefilter(t, lo, hi, plain, wanted, marks, flags, prefixes, lengths, words, names):
    """Mark one text. With `plain`, False as soon as it turns out not to be in plain spelling."""
    i = lo
    numbers = False
    while i < hi:
        stop = flags[t[i]] & STOP_BITS
        if stop == 0:
            i += 1
        elif stop == DIGIT:
            numbers = True
            if i > lo and flags[t[i - 1]] & WORD:
                i = _word(t, lo, hi, i, wanted, marks, flags, prefixes, lengths)
            else:
                i = number(t, lo, hi, i, wanted, marks, words)
        elif stop == FOREIGN:
            if plain:
                return False
            i += 1
        elif stop == AMPERSAND:
            if plain and entity(t, i, hi)[0]:
                return False
            i += 1
        else:
            sign(t, lo, hi, i, stop, wanted, marks, flags, names)
            i += 1
    if numbers:
        # A street's address has a number; where it begins is left to the finder, which gets all.
        mark(marks, wanted, ADDRESS, lo, hi)
    return True


@kernel
def _word(t, lo, hi, i, wanted, marks, flags, prefixes, lengths):
    """A word with its first digit at i: of a token, an IBAN or an identity number; its end."""
    first, j = i, i + 1
    while first > lo and flags[t[first - 1]] & WORD:
        first -= 1
    digits = 1
    while j < hi and flags[t[j]] & WORD:
        digits += is_digit(t[j])
        j += 1
    if digits >= 5 and 8 <= j - first <= 18 and 65 <= t[first] <= 90:
        mark(marks, wanted, NATIONAL_ID, first, j)
    if wanted >> SECRET & 1:
        _token(t, lo, hi, first, j, wanted, marks, flags, prefixes)
    length = lengths[(int(t[first]) & 31) << 5 | int(t[first + 1]) & 31]
    if i == first + 2 and length and j > i + 1 and is_digit(t[i + 1]):
        k, found = i + 2, 4
        while k < hi and found < length:
            if flags[t[k]] & WORD:
                found += 1
            elif not (t[k] == 0x20 or t[k] == 0x2D) or not flags[t[k - 1]] & WORD:
                break
            k += 1
        if found == length:
            mark(marks, wanted, IBAN, first, k)
    return j


@kernel
def _token(t, lo, hi, first, j, wanted, marks, flags, prefixes):
    """Mark the token of known form that the word at `first` to j is part of."""
    end = j
    while end < hi and flags[t[end]] & VALUE:
        end += 1
    k = first
    while True:
        begins = end - k >= 15 and (k == lo or not flags[t[k - 1]] & WORD)
        if begins and prefixes[triple(t[k], t[k + 1], t[k + 2])]:
            mark(marks, wanted, SECRET, k, end)
            return
        if k == lo or first - k > TOKEN_BACK or not flags[t[k - 1]] & VALUE:
            break
        k -= 1
