"""The pass over a batch of texts.

It is a prefilter: every place at which a finder finds something in the whole text is marked, and
few others; the finders then look at those alone (batch.py). A text with characters beyond ASCII or
HTML entities is first written down in its plain spelling (plain.py); marks are turned back into
places of the original.
"""

import numpy as np
import numpy.typing as npt

from tasks.data.kernels.buffers import Bytes, Offsets
from tasks.data.privacy.prefilter.plain import fold_all
from tasks.data.privacy.prefilter.tables import tables
from tasks.data.privacy.prefilter.texts import prefilter_texts


def scan(data: Bytes, offsets: Offsets, wanted: int) -> npt.NDArray[np.int64]:
    """`[marks, 4]`: text, first and last byte, number of the prefilter; in the texts' order."""
    looked = tables()
    foreign = np.zeros(len(offsets) - 1, np.bool_)
    marks = _prefilter_all(data, offsets, wanted, foreign, True)
    if not foreign.any():
        return marks
    texts = np.flatnonzero(foreign)
    room = int((offsets[texts + 1] - offsets[texts]).sum()) + 1
    plain, places = np.empty(room, np.uint8), np.empty(room, np.int64)
    ends = np.zeros(len(texts) + 1, np.int64)
    fold_all(data, offsets, texts, looked.folded, plain, places, ends)
    plain.flags.writeable = ends.flags.writeable = False  # as Arrow's buffers: compiled once
    more = _prefilter_all(plain, ends, wanted, np.zeros(len(texts), np.bool_), False)
    # The end of a text is the first byte of the next in `places`: it is not to be looked up there.
    ended = more[:, 2] == ends[more[:, 0] + 1]
    more[:, 0] = texts[more[:, 0]]
    more[:, 1:3] = places[np.minimum(more[:, 1:3], room - 1)]
    more[ended, 2] = offsets[more[ended, 0] + 1]
    merged = np.concatenate([marks, more])
    return merged[np.argsort(merged[:, 0], kind="stable")]


def _prefilter_all(
    data: Bytes, offsets: Offsets, wanted: int, foreign: npt.NDArray[np.bool_], plain: bool
) -> npt.NDArray[np.int64]:
    """The marks of all texts; those in another than plain spelling have none, and are noted."""
    # A guess; where it is too low the marks have been counted, and the second pass has room.
    capacity = 1024 + len(data) // 256
    while True:
        marks = np.empty((capacity, 4), np.int64)
        prefilter_texts(data, offsets, wanted, foreign, plain, marks, *tables().of_texts)
        count = int(marks[0, 0])
        if count < capacity:
            return marks[1 : count + 1]
        capacity = count + 1
