"""How much of a text is n-grams of words over again (Rae et al. 2021, Gopher, appendix A.1.1).

Words that begin a repeated n-gram begin a repeated (n - 1)-gram too. So only pairs are counted in
full: for every larger n, what is left to look at are the few places whose (n - 1)-gram repeats.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tasks.data.filtering.words import Words
from tasks.data.kernels import kernel

# The n of those n-grams of which the most frequent is measured, and of those that are all counted.
TOP, REPEATED, LARGEST = (2, 3, 4), (5, 6, 7, 8, 9, 10), 10
# Odd, with bits in no order: products with them spread hashes over the table.
SPREAD, MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)


class Space(NamedTuple):
    """Room to work: the places still looked at with their n-grams, and a table to count them."""

    place: npt.NDArray[np.int32]
    gram: npt.NDArray[np.uint64]
    slot: npt.NDArray[np.int32]
    key: npt.NDArray[np.uint64]
    counts: npt.NDArray[np.int32]


@kernel
def measure(words: Words, n_words: int, space: Space, out: npt.NDArray[np.float64]) -> None:
    """Characters in the most frequent 2-, 3- and 4-gram (`out[:3]`, spaces between the words
    included, the first of equals), and in 5- to 10-grams that occurred before, counted from left
    to right without overlap (`out[3:9]`).
    """
    out[:9] = 0
    places = max(0, n_words - 1)
    for k in range(places):
        space.place[k] = k
        space.gram[k] = words[k].hash
    for n in range(2, LARGEST + 1):
        places = count_grams(words, n_words, n, places, space)
        if n <= 4:
            out[n - 2] = top_characters(words, n_words, n, places, space)
        else:
            out[n - 2] = repeated_characters(words, n, places, space)
        places = keep_repeated(places, space)


@kernel
def count_grams(words: Words, n_words: int, n: int, places: int, space: Space) -> int:
    """Extend the (n - 1)-grams by a word and count them; how many have a word to extend by."""
    while places and space.place[places - 1] + n > n_words:
        places -= 1
    bits = 4
    while (1 << bits) < 2 * places:
        bits += 1
    shift, mask = np.uint64(64 - bits), (1 << bits) - 1
    space.counts[: 1 << bits] = 0
    for k in range(places):
        gram = (space.gram[k] * MIX) ^ (words[space.place[k] + n - 1].hash * SPREAD)
        slot = np.int64((gram * SPREAD) >> shift)
        while space.counts[slot] and space.key[slot] != gram:
            slot = (slot + 1) & mask
        space.gram[k], space.slot[k], space.key[slot] = gram, slot, gram
        space.counts[slot] += 1
    return places


@kernel
def top_characters(words: Words, n_words: int, n: int, places: int, space: Space) -> int:
    """Characters of the most frequent n-gram, all its occurrences; of equals the first."""
    if n_words < n:
        return 0
    best, most = 0, 1
    for k in range(places):
        if space.counts[space.slot[k]] > most:
            best, most = space.place[k], space.counts[space.slot[k]]
    return most * (gram_characters(words, best, n) + n - 1)


@kernel
def repeated_characters(words: Words, n: int, places: int, space: Space) -> int:
    """Characters of n-grams seen before; after one, the search goes on behind it."""
    characters, behind = 0, 0
    for k in range(places):
        slot = space.slot[k]
        if space.counts[slot] == 1 or space.place[k] < behind:
            continue
        if space.counts[slot] < 0:
            characters += gram_characters(words, space.place[k], n)
            behind = space.place[k] + n
        else:
            space.counts[slot] = -space.counts[slot]  # seen
    return characters


@kernel
def gram_characters(words: Words, place: int, n: int) -> int:
    """Characters of n words."""
    characters = 0
    for k in range(place, place + n):
        characters += words[k].end - words[k].start
    return characters


@kernel
def keep_repeated(places: int, space: Space) -> int:
    """Drop the places whose n-gram occurs once."""
    kept = 0
    for k in range(places):
        if space.counts[space.slot[k]] != 1:
            space.place[kept], space.gram[kept] = space.place[k], space.gram[k]
            kept += 1
    return kept


def space_for(words: int) -> Space:
    """Room for a text of so many words."""
    room = max(16, words)
    table = 1 << (2 * room - 1).bit_length()
    return Space(
        np.empty(room, np.int32),
        np.empty(room, np.uint64),
        np.empty(room, np.int32),
        np.empty(table, np.uint64),
        np.empty(table, np.int32),
    )
