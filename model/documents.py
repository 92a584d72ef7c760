"""Where documents begin in a batch, counted before it is on a device.

Kernels for rows of different lengths ask for the places where documents begin and end. Found here,
from the arrays that a loader makes, they cost nothing that a device would have to be waited for.

Letters: B rows, T positions, N documents of all rows.
"""

import numpy as np

BEGINS = "begins"
"""What the places are called in a batch."""


def begins_of(documents_BT: np.ndarray) -> np.ndarray | None:
    """The place of each document's first token among all B T, in order, then B T, int32; with B T
    once more until there are a power of two, so that steps have few different shapes.

    Padding (document 0) counts as a document. None where a row comes back to a document.
    """
    count = documents_BT.size
    changes = np.diff(documents_BT, axis=-1, prepend=-1) != 0
    begins = np.flatnonzero(changes)
    rows = begins // documents_BT.shape[-1]
    pairs = np.stack((rows, documents_BT.ravel()[begins]))
    if np.unique(pairs, axis=1).shape[1] < len(begins):
        return None
    room = 1 << max(6, len(begins).bit_length())
    return np.pad(begins, (0, room - len(begins)), constant_values=count).astype(np.int32)
