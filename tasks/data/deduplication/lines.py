"""Lines as spans: equal up to white space, and no repeats of each other within a document."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tasks.data.deduplication.spans import Spans
from tasks.data.kernels import kernel
from tasks.data.kernels.buffers import Bytes, Offsets, text_buffer
from tasks.data.kernels.characters import SPACE, WIDE, WORD, decode, word_kinds
from tasks.data.kernels.words import FACTOR, OTHER_FACTOR, SEED, Hashes, Kinds, mix


@dataclass(frozen=True)
class Lines:
    """Finds the lines of so many words or more. The place of a line is the number of its document,
    so that lines of one document are no repeats of each other.
    """

    least_words: int

    def __call__(self, texts: pa.Array, first: int) -> Spans:
        """The lines of these texts, with their ends."""
        data, offsets = text_buffer(texts)
        room = int(np.count_nonzero(data[offsets[0] : offsets[-1]] == 0x0A)) + len(texts)
        low, high = np.empty(room, np.uint64), np.empty(room, np.uint64)
        owners, begins, ends = (np.empty(room, np.int64) for _ in range(3))
        n = _split(data, offsets, word_kinds(), self.least_words, low, high, owners, begins, ends)
        return Spans(low[:n], high[:n], owners[:n], begins[:n], ends[:n], first + owners[:n])


@kernel
def _split(
    data: Bytes,
    offsets: Offsets,
    kinds: Kinds,
    least_words: int,
    low: Hashes,
    high: Hashes,
    owners: Offsets,
    begins: Offsets,
    ends: Offsets,
) -> int:
    count = 0
    for text in range(len(offsets) - 1):
        at, end = offsets[text], offsets[text + 1]
        while at < end:
            begin, words, inside, gap = at, 0, False, False
            one, two = SEED, SEED
            while at < end:
                code = int(data[at])
                if code == 0x0A:
                    at += 1
                    break
                if code < 0x80:
                    at += 1
                else:
                    code, at = decode(data, at)
                kind = kinds[code]
                if kind & SPACE:
                    gap, inside = True, False
                    continue
                if gap and one != SEED:
                    one, two = one * FACTOR, two * OTHER_FACTOR
                gap = False
                one = (one ^ np.uint64(code)) * FACTOR
                two = (two ^ np.uint64(code)) * OTHER_FACTOR
                if kind & WIDE or (kind & WORD and not inside):
                    words += 1
                inside = kind & WORD != 0 and kind & WIDE == 0
            if words >= least_words:
                low[count], high[count], owners[count] = mix(one), mix(two), text
                begins[count], ends[count] = begin, at
                count += 1
    return count
