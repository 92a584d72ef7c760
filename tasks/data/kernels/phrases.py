"""Finding one of a few fixed phrases in UTF-8 bytes, whatever the case of its ASCII letters."""

from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tasks.data.kernels import kernel
from tasks.data.kernels.buffers import Bytes

PAIRS = 1 << 10  # of five bits a byte, the same for both cases of a letter


class Phrases(NamedTuple):
    """Lower-case phrases, `[phrases, bytes]`, their lengths, and which two bytes begin one."""

    bytes: npt.NDArray[np.uint8]
    length: npt.NDArray[np.int64]
    begins: npt.NDArray[np.bool_]


@cache
def phrases(words: tuple[str, ...]) -> Phrases:
    """The table of these phrases."""
    rows = [word.lower().encode() for word in words]
    table = np.zeros((len(rows), max(map(len, rows))), np.uint8)
    begins = np.zeros(PAIRS, np.bool_)
    for row, phrase in zip(table, rows, strict=True):
        row[: len(phrase)] = list(phrase)
        begins[(phrase[0] & 31) << 5 | (phrase[1] & 31)] = True
    return Phrases(table, np.array([len(row) for row in rows], np.int64), begins)


@kernel
def phrase_at(data: Bytes, at: int, end: int, phrases: Phrases) -> int:
    """The number of the phrase that stands at a byte, or -1."""
    if at + 1 >= end or not phrases.begins[(data[at] & 31) << 5 | (data[at + 1] & 31)]:
        return -1
    for k in range(len(phrases.length)):
        length = phrases.length[k]
        if at + length > end:
            continue
        i = 0
        while i < length:
            byte = data[at + i]
            if 65 <= byte <= 90:
                byte += 32
            if byte != phrases.bytes[k, i]:
                break
            i += 1
        if i == length:
            return k
    return -1
