"""Native counts for the figures of shards: words of text, and how often each id occurs."""

from typing import Any

import numpy as np

from tasks.data.kernels import kernel
from tasks.data.kernels.buffers import Bytes, Offsets


@kernel
def tally_words(data: Bytes, offsets: Offsets) -> int:
    """How many words there are: what ASCII white space and the ends of texts part."""
    words = 0
    for text in range(len(offsets) - 1):
        apart = True
        for byte in data[offsets[text] : offsets[text + 1]]:
            space = byte == 32 or 9 <= byte <= 13
            words += apart and not space
            apart = space
    return words


@kernel
def tally_ids(tokens: np.ndarray, counts: Any) -> None:
    """Add to `counts`, int64 [V], how often each id occurs; every token is below V."""
    for token in tokens:
        counts[token] += 1
