"""Arrow text columns as the flat arrays that kernels take, and back, without a copy."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]


def text_buffer(texts: pa.Array | pa.ChunkedArray | Sequence[str]) -> tuple[Bytes, Offsets]:
    """The UTF-8 bytes of all texts, and n + 1 offsets: text i is `data[offsets[i]:offsets[i + 1]]`.

    Views of the array's own buffers, sliced ones too; strings with 32-bit offsets are widened.
    """
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    if not isinstance(texts, pa.Array):
        texts = pa.array(texts, pa.large_string())
    texts = texts.cast(pa.large_string())
    assert texts.null_count == 0, "text columns have no nulls"
    if len(texts) == 0:
        return np.zeros(0, np.uint8), np.zeros(1, np.int64)
    _, offsets, data = texts.buffers()
    numbers = np.frombuffer(offsets, np.int64, len(texts) + 1, 8 * texts.offset)
    return np.frombuffer(data if data is not None else b"", np.uint8), numbers


def text_array(data: Bytes, offsets: Offsets) -> pa.Array:
    """The large_string array over these bytes; the inverse of `text_buffer`."""
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_string(), len(offsets) - 1, buffers)
