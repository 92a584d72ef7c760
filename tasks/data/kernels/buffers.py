"""Arrow text columns as the flat arrays that kernels take, and back, without a copy."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]


def text_buffer(texts: pa.Array | pa.ChunkedArray | Sequence[str]) -> tuple[Bytes, Offsets]:
    """The UTF-8 bytes of all texts, and n + 1 offsets: text i is `data[offsets[i]:offsets[i + 1]]`.

    Views of the array's own buffers, sliced ones too, never to be written; strings with 32-bit
    offsets are widened.
    """
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    if not isinstance(texts, pa.Array):
        texts = pa.array(texts, pa.large_string())
    texts = texts.cast(pa.large_string())
    assert texts.null_count == 0, "text columns have no nulls"
    offsets, content = np.zeros(1, np.int64), np.zeros(0, np.uint8)
    if len(texts):
        _, numbers, data = texts.buffers()
        # A slice has its parent's buffers, and its own offsets further on in them.
        offsets = np.frombuffer(numbers, np.int64, len(texts) + 1, 8 * texts.offset)
        content = np.frombuffer(data if data is not None else b"", np.uint8)
    # One type, whether or not a buffer may be written: kernels are compiled once.
    offsets.flags.writeable = content.flags.writeable = False
    return content, offsets


def text_array(data: Bytes, offsets: Offsets) -> pa.Array:
    """The large_string array over these bytes; the inverse of `text_buffer`."""
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_string(), len(offsets) - 1, buffers)
