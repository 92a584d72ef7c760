"""What is known of certain words: how a form is cut, which are units or stop words; one table.

An open-addressed table by the words' hashes, FNV-1a over their code points.
"""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tasks.data.filtering.alphabet import Codes
from tasks.data.filtering.contractions import forms
from tasks.data.kernels import kernel

SEED, PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
SPREAD = np.uint64(0x9E3779B97F4A7C15)
BITS = 12
SLOTS, SHIFT = 1 << BITS, np.uint64(64 - BITS)

# What a word is known as; from `STOP` on, which of the eight stop words.
FORM, UNIT, STOP = 1, 2, 4
STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
UNITS = (
    "km km² km³ m m² m³ dm dm² dm³ cm cm² cm³ mm mm² mm³ ha µm nm yd in ft kg g mg µg t lb oz m/s "
    "km/h kmh mph hPa Pa mbar mb MB kb KB gb GB tb TB T G M K % £ € ¥ $ US$ C$ A$ ฿ ₽ ₹ ₩ км см м "
    "мм кг г мг кПа Па мбар Кб КБ кб Мб МБ мб Гб ГБ гб Тб ТБ тб"
)
LONGEST_UNIT = 4
LONGEST_FORM = max(len("".join(parts)) for parts in forms())
# Which characters, by their last bits, a form or stop word begins and ends with.
ENDS = 128
FORM_ENDS = np.zeros((ENDS, ENDS), np.bool_)
for _first, _last in {(parts[0][0], parts[-1][-1]) for parts in (*forms(), *STOP_WORDS)}:
    FORM_ENDS[ord(_first) % ENDS, ord(_last) % ENDS] = True
# `first` and `second` are the lengths of a form's first part and of its first two; 0 is no cut.
ENTRY = np.dtype([("hash", np.uint64), ("known", np.uint16), ("first", "u1"), ("second", "u1")])
Lexicon = npt.NDArray[Any]


@cache
def lexicon() -> Lexicon:
    """The table, `[SLOTS]` entries."""
    table = np.zeros(SLOTS, ENTRY)
    for parts in forms():
        first = len(parts[0]) if len(parts) > 1 else 0
        second = len(parts[0] + parts[1]) if len(parts) > 2 else 0
        _enter(table, "".join(parts), FORM, first, second)
    for unit in UNITS.split():
        _enter(table, unit, UNIT)
    for k, word in enumerate(STOP_WORDS):
        _enter(table, word, 1 << (STOP + k))
    return table


def _enter(table: Lexicon, word: str, known: int, first: int = 0, second: int = 0) -> None:
    codes = np.array([ord(c) for c in word], np.uint32)
    hash = np.uint64(hash_of(codes, 0, len(codes)))
    slot = find(table, hash)
    entry = table[slot]
    table[slot] = (hash, entry["known"] | known, entry["first"] or first, entry["second"] or second)


@kernel
def hash_of(codes: Codes, low: int, high: int) -> np.uint64:
    """The hash of a word."""
    hash = SEED
    for at in range(low, high):
        hash = (hash ^ np.uint64(codes[at])) * PRIME
    return hash


@kernel
def find(lexicon: Lexicon, hash: np.uint64) -> int:
    """The slot of a word, or the free one where it would be."""
    slot = np.int64((hash * SPREAD) >> SHIFT)
    while lexicon[slot].hash != 0 and lexicon[slot].hash != hash:
        slot = (slot + 1) & (SLOTS - 1)
    return int(slot)


@kernel
def known(lexicon: Lexicon, hash: np.uint64) -> int:
    """What a word is known as; 0 is nothing."""
    return lexicon[find(lexicon, hash)].known
