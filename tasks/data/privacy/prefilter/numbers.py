"""Runs of digits: what kinds of numbers each may be, by its groups and by what stands around it."""

from tasks.data.kernels import kernel
from tasks.data.kernels.buffers import Bytes
from tasks.data.privacy.prefilter.marks import (
    CARD,
    IP,
    NATIONAL_ID,
    PHONE,
    is_alphanumeric,
    is_digit,
    mark,
    starts_word,
)


@kernel
def number(t, lo, hi, i, wanted, marks, words):
    """A run of digits and separators that begins at i (`spans.RUN`); its end, and the marks."""
    digits, groups, dotted, fours, threes = 0, 0, 0, 0, 0
    before, last = 0, 0  # lengths of the two groups before
    ip, card, american, wide = False, False, False, False
    plus = _is_signed(t, lo, i)
    j, separator, width = i, 0, 0
    while True:
        first = j
        while j < hi and is_digit(t[j]):
            j += 1
        n = j - first
        digits += n
        groups += 1
        dotted = 0 if n > 3 else dotted + 1 if separator == 0x2E and width == 1 else 1
        ip |= dotted >= 4
        american |= n == 4 and last == 3 and before == 3
        fours = fours + 1 if n == 4 else 0
        decimal = separator == 0x2E and n > 4
        threes += 1 if n == 3 else 2 * (n > 3 and not decimal)
        # Groups of four, or 4-6-5, or one run whose check digit is right.
        card |= fours >= 3 or (n == 6 and last == 4) or (12 <= n <= 19 and _luhn(t, first, j))
        before, last = last, n
        end = j
        while end < hi and end - j < 3 and _separates(t[end]):
            end += 1
        if end in (j, hi) or not is_digit(t[end]):
            break
        for k in range(j, end):
            plus |= t[k] == 0x2B and t[end] != 0x30
        separator, width = t[j], end - j
        wide |= width > 2
        j = end
    if ip:
        mark(marks, wanted, IP, i, j)
    if card and digits >= 12:
        mark(marks, wanted, CARD, i, j)
    lettered = digits >= 6 and i - 2 >= lo and _begins_id(t, lo, i)
    if lettered or (digits >= 8 and threes >= 2):  # every form has such groups
        mark(marks, wanted, NATIONAL_ID, max(lo, i - 3 * lettered), j)
    if digits >= 7 and wanted >> PHONE & 1:
        trunk = t[i] == 0x30 and is_digit(t[i + 1]) and 2 <= groups <= 5 and not wide
        if american or plus or trunk or _is_announced(t, lo, hi, i, j, words):
            mark(marks, wanted, PHONE, i, j)
    return j


@kernel
def _is_signed(t: Bytes, lo: int, i: int) -> bool:
    """Whether "+" or "+(" precedes a number that begins with no 0, and is no sum or exponent."""
    k = i - 1 - (i > lo and t[i - 1] == 0x28)
    if k < lo or t[k] != 0x2B or t[i] == 0x30:
        return False
    return k == lo or not is_alphanumeric(t[k - 1])


@kernel
def _begins_id(t: Bytes, lo: int, i: int) -> bool:
    """Whether capitals stand apart before the digits: two (British) or one of X, Y, Z (Spanish)."""
    if t[i - 1] == 0x20:
        return i - 3 >= lo and 65 <= t[i - 2] <= 90 and 65 <= t[i - 3] <= 90
    return t[i - 1] == 0x2D and 0x58 <= t[i - 2] <= 0x5A


@kernel
def _separates(c: int) -> bool:
    return c == 0x20 or c == 0x2D or c == 0x2E or c == 0x2F or c == 0x28 or c == 0x29 or c == 0x2B


@kernel
def _luhn(t: Bytes, first: int, end: int) -> bool:
    total = 0
    for k in range(end - first):
        digit = int(t[end - 1 - k]) - 48
        if k & 1:
            digit = digit * 2 - 9 if digit > 4 else digit * 2
        total += digit
    return total % 10 == 0


@kernel
def _is_announced(t, lo, hi, i, j, words):
    """Whether a word for telephone may stand before i or right behind j. Any character beyond ASCII
    may be part of one.
    """
    reach = words[2]
    for k in range(max(lo, i - reach - 1), i):
        if t[k] >= 0x80:
            return True
        begins = k <= i - reach + 1 or k == lo or not is_alphanumeric(t[k - 1])
        if begins and t[k] | 32 >= 0x61 and starts_word(t, k, hi, words):
            return True
    for k in range(j + 1, min(hi, j + 4)):
        if t[k] | 32 >= 0x61 and starts_word(t, k, hi, words):
            return True
    return False
