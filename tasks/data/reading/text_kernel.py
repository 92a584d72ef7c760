"""What speaks against the texts of a column, found in one native pass."""

import numpy as np
import numpy.typing as npt

from tasks.data.kernels import kernel
from tasks.data.kernels.buffers import Bytes, Offsets
from tasks.data.reading.json_kernel import sequence

CLEAN, SUSPECT = 0, 1


@kernel
def inspect_texts(data: Bytes, offsets: Offsets, verdicts: npt.NDArray[np.uint8]) -> None:
    """verdicts [texts]: CLEAN for valid UTF-8 that is not white space alone, without NUL and CR LF.

    SUSPECT is what the row path must look at; it may find nothing.
    """
    for text in range(len(offsets) - 1):
        at, end = offsets[text], offsets[text + 1]
        solid, clean = False, True
        while at < end and clean:
            byte = data[at]
            if byte < 0x80:
                clean = byte != 0 and (byte != 0x0A or at == offsets[text] or data[at - 1] != 0x0D)
                solid = solid or (byte > 0x20 and byte != 0x7F)
                at += 1
                continue
            size = _sequence_within(data, at, end)
            clean = size > 0
            solid = solid or (byte > 0xC2 and byte < 0xE1) or byte > 0xE3
            at += size
        verdicts[text] = CLEAN if clean and solid else SUSPECT


@kernel
def _sequence_within(data: Bytes, at: int, end: int) -> int:
    need = 2 if data[at] < 0xE0 else 3 if data[at] < 0xF0 else 4
    return sequence(data, at) if at + need <= end else 0
