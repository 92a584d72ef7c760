"""Words of a text as spaCy's English tokenizer cuts them, in one pass over code points.

White space parts a text into chunks. Of a chunk, signs come off the front and the back for as long
as there are any; what is left is a known form (`contractions`), an address, or is cut at signs
within it. The rules are those of spaCy's `Tokenizer` with its English settings; not followed are
forms of three or more words within a chunk, and addresses by IP number.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from tasks.data.filtering.addresses import is_address
from tasks.data.filtering.alphabet import (
    ALPHANUMERIC,
    BEFORE_STOP,
    DIGIT,
    LETTER,
    LOWER,
    PUNCTUATION,
    SENTENCE_END,
    SPACE,
    SUFFIX,
    SYMBOL,
    UPPER,
    Codes,
    Kinds,
)
from tasks.data.filtering.lexicon import (
    ENDS,
    FORM,
    FORM_ENDS,
    LONGEST_FORM,
    PRIME,
    SEED,
    STOP,
    Lexicon,
    find,
    hash_of,
    known,
)
from tasks.data.filtering.signs import infix_length, prefix_length, stop_length, suffix_length
from tasks.data.kernels import kernel

# What a word is, as bits; from `STOP` on, which of the eight stop words.
WITH_LETTER, ALL_SYMBOLS, ALL_PUNCTUATION, ENDS_SENTENCE = (1 << k for k in range(4))
# Where a word begins and ends, in characters, its hash, and what it is.
WORD = np.dtype(
    [("start", np.int32), ("end", np.int32), ("hash", np.uint64), ("kind", np.uint16)], align=True
)
Words = npt.NDArray[Any]
STOP_BIT = 1 << STOP
LETTERS = LETTER | LOWER | UPPER | BEFORE_STOP | ALPHANUMERIC
DIGITS = DIGIT | BEFORE_STOP | ALPHANUMERIC


@kernel
def split(codes: Codes, kinds: Kinds, n: int, lexicon: Lexicon, words: Words) -> int:
    """Write the words of `codes[:n]` to `words`; how many there are."""
    count, at = 0, 0
    while at < n:
        if kinds[at] & SPACE:
            at += 1
            continue
        start, body, all_kinds, stem, hash = at, 0, 0, SEED, SEED
        while at < n and not kinds[at] & SPACE:
            body, stem = all_kinds, hash  # of all characters but the last
            all_kinds |= kinds[at]
            hash = (hash ^ np.uint64(codes[at])) * PRIME
            at += 1
        if is_simple(all_kinds):
            count = add_simple(codes, kinds, start, at, hash, all_kinds, lexicon, words, count)
        elif is_simple(body) and is_end_sign(codes, kinds, start, at, lexicon, hash, stem):
            count = add_simple(codes, kinds, start, at - 1, stem, body, lexicon, words, count)
            count = add(codes, kinds, at - 1, at, lexicon, words, count)
        else:
            count = split_chunk(codes, kinds, start, at, lexicon, words, count)
    return count


@kernel
def is_simple(all_kinds: int) -> bool:
    """Whether characters are all letters or all digits: no rule parts them but a known form."""
    if all_kinds & LETTER:
        return not all_kinds & ~LETTERS
    return all_kinds & DIGIT > 0 and not all_kinds & ~DIGITS


@kernel
def add_simple(
    codes: Codes,
    kinds: Kinds,
    low: int,
    high: int,
    hash: np.uint64,
    all_kinds: int,
    lexicon: Lexicon,
    words: Words,
    count: int,
) -> int:
    """Write a word of letters or digits, or those of a known form."""
    as_known = known(lexicon, hash) if may_be_form(codes, low, high) else 0
    if as_known & FORM:
        return add_form(codes, kinds, low, high, hash, lexicon, words, count)
    word = words[count]
    word.start, word.end, word.hash = low, high, hash
    word.kind = (WITH_LETTER if all_kinds & LETTER else 0) | (as_known & ~(STOP_BIT - 1))
    return count + 1


@kernel
def is_end_sign(
    codes: Codes,
    kinds: Kinds,
    low: int,
    high: int,
    lexicon: Lexicon,
    hash: np.uint64,
    stem: np.uint64,
) -> bool:
    """Whether the last character of a chunk, the first sign in it, comes off, and all is said."""
    if may_be_form(codes, low, high) and known(lexicon, hash) & FORM:
        return False
    if may_be_form(codes, low, high - 1) and known(lexicon, stem) & FORM:
        return False
    if codes[high - 1] == ord("."):
        return stop_length(codes, kinds, low, high) == 1
    return kinds[high - 1] & SUFFIX > 0


@kernel
def split_chunk(
    codes: Codes, kinds: Kinds, low: int, high: int, lexicon: Lexicon, words: Words, count: int
) -> int:
    """Words of a chunk without white space: prefixes, what is within, suffixes."""
    first, top = count, len(words)  # suffixes wait at the far end, the last on top
    form = is_form(codes, low, high, lexicon)
    while low < high and not form:
        front = prefix_length(codes, kinds, low, high)
        form = front > 0 and is_form(codes, low + front, high, lexicon)
        back = 0 if form else suffix_length(codes, kinds, low + front, high, lexicon)
        if back and is_form(codes, low, high - back, lexicon):
            form, front = True, 0
        if front:
            count = add(codes, kinds, low, low + front, lexicon, words, count)
        if back:
            top -= 1
            add(codes, kinds, high - back, high, lexicon, words, top)
        low, high = low + front, high - back
        if front == back == 0:
            break
        form = form or (front > 0 and back > 0 and is_form(codes, low, high, lexicon))
    if form:
        hash = hash_of(codes, low, high)
        count = add_form(codes, kinds, low, high, hash, lexicon, words, count)
    elif low < high and is_address(codes, kinds, low, high):
        count = add(codes, kinds, low, high, lexicon, words, count)
    else:
        count = split_within(codes, kinds, low, high, lexicon, words, count)
    count = take_back(words, top, count)
    return join_forms(codes, kinds, lexicon, words, first, count)


@kernel
def split_within(
    codes: Codes, kinds: Kinds, low: int, high: int, lexicon: Lexicon, words: Words, count: int
) -> int:
    """Cut at signs between letters or digits."""
    start, at = low, low
    while at < high:
        if kinds[at] & (LETTER | DIGIT):
            at += 1
            continue
        length = infix_length(codes, kinds, at, low, high)
        if length and at > low:
            if at > start:
                count = add(codes, kinds, start, at, lexicon, words, count)
            count = add(codes, kinds, at, at + length, lexicon, words, count)
            start = at + length
        at += max(1, length)
    if start < high:
        count = add(codes, kinds, start, high, lexicon, words, count)
    return count


@kernel
def take_back(words: Words, top: int, count: int) -> int:
    """The words from `top` on follow the first `count`."""
    for k in range(top, len(words)):
        words[count] = words[k]
        count += 1
    return count


@kernel
def join_forms(
    codes: Codes, kinds: Kinds, lexicon: Lexicon, words: Words, first: int, count: int
) -> int:
    """Two words of a chunk that are a known form together, as `:` and `)` are, become one."""
    kept = first
    for k in range(first + 1, count):
        low, high = words[kept].start, words[k].end
        sign = (words[kept].kind | words[k].kind) & ALL_SYMBOLS
        if sign and may_be_form(codes, low, high):
            entry = lexicon[find(lexicon, hash_of(codes, low, high))]
            if entry.known & FORM and entry.first == 0:
                add(codes, kinds, low, high, lexicon, words, kept)
                continue
        kept += 1
        words[kept] = words[k]
    return kept + 1 if count > first else count


@kernel
def is_form(codes: Codes, low: int, high: int, lexicon: Lexicon) -> bool:
    """Whether the characters are a known form."""
    if not may_be_form(codes, low, high):
        return False
    return known(lexicon, hash_of(codes, low, high)) & FORM > 0


@kernel
def may_be_form(codes: Codes, low: int, high: int) -> bool:
    """Whether a form or stop word begins and ends with these characters: most words need no
    further look."""
    if low >= high or high - low > LONGEST_FORM:
        return False
    return FORM_ENDS[codes[low] & (ENDS - 1), codes[high - 1] & (ENDS - 1)]


@kernel
def add_form(
    codes: Codes,
    kinds: Kinds,
    low: int,
    high: int,
    hash: np.uint64,
    lexicon: Lexicon,
    words: Words,
    count: int,
) -> int:
    """The words that a known form is cut into."""
    start, entry = low, lexicon[find(lexicon, hash)]
    for cut in (entry.first, entry.second):
        if cut:
            count = add(codes, kinds, start, low + cut, lexicon, words, count)
            start = low + cut
    return add(codes, kinds, start, high, lexicon, words, count)


@kernel
def add(
    codes: Codes, kinds: Kinds, low: int, high: int, lexicon: Lexicon, words: Words, count: int
) -> int:
    """Write one word."""
    any_kind, every_kind, hash = 0, 0xFFFF, SEED
    for at in range(low, high):
        any_kind |= kinds[at]
        every_kind &= kinds[at]
        hash = (hash ^ np.uint64(codes[at])) * PRIME
    kind = WITH_LETTER if any_kind & LETTER else 0
    if every_kind & SYMBOL:
        kind |= ALL_SYMBOLS
    if every_kind & PUNCTUATION:
        kind |= ALL_PUNCTUATION
    if every_kind & SENTENCE_END and high - low == 1:
        kind |= ENDS_SENTENCE
    if may_be_form(codes, low, high):
        kind |= known(lexicon, hash) & ~(STOP_BIT - 1)
    word = words[count]
    word.start, word.end, word.hash, word.kind = low, high, hash, kind
    return count + 1
