"""Texts as their words are compared, however they were typed: in NFKC, without format characters.

Full-width letters, ligatures and other variants become what they stand for; soft hyphens, joiners,
zero-width spaces and what selects a variant go. Only texts with such characters, or with marks that
NFC may put in order, pass through Python.
"""

import re
import unicodedata
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tasks.data.kernels import kernel
from tasks.data.kernels.buffers import Bytes, Offsets, text_buffer
from tasks.data.kernels.characters import CODE_POINTS, decode, folding, is_unseen, ranges

Flags = npt.NDArray[np.uint8]


def fold(texts: pa.Array) -> pa.Array:
    """The texts folded; `texts` itself where no character needs it."""
    loose = holding(texts, folding(), 0xC2)
    if not loose.any():
        return texts
    mask = pa.array(loose)
    folded = [fold_text(text) for text in texts.filter(mask).to_pylist()]
    return pc.replace_with_mask(texts, mask, pa.array(folded, texts.type))


def fold_text(text: str) -> str:
    """One text."""
    return unicodedata.normalize("NFKC", _unseen().sub("", text))


def holding(texts: pa.Array, table: Flags, least: int) -> npt.NDArray[np.bool_]:
    """`[n]` which texts have a character that the table marks. `least` is the lowest byte that one
    begins with in UTF-8: all below are passed over.
    """
    data, offsets = text_buffer(texts)
    out = np.zeros(len(texts), np.bool_)
    _find(data, offsets, table, least, out)
    return out


@cache
def _unseen() -> re.Pattern[str]:
    unseen = np.zeros(CODE_POINTS, np.bool_)
    folded = np.flatnonzero(folding()).tolist()  # all unseen ones are among them
    unseen[[code for code in folded if is_unseen(chr(code))]] = True
    return re.compile(f"[{ranges(unseen)}]+")


@kernel
def _find(
    data: Bytes, offsets: Offsets, table: Flags, least: int, out: npt.NDArray[np.bool_]
) -> None:
    for text in range(len(out)):
        at, end = offsets[text], offsets[text + 1]
        while at < end and not out[text]:
            if data[at] < least:
                at += 1
            else:
                code, at = decode(data, at)
                out[text] = table[code] != 0
