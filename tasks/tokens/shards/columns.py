"""One column of numbers in a memory-mapped Arrow file, verified on first touch.

An Arrow file with a flipped bit loads without complaint, so each 1 MiB block is compared with its
SHA-256 in the manifest before a number of it is handed out for the first time.
"""

import hashlib
import mmap

import numpy as np
import pyarrow as pa

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.manifest import BLOCK_BYTES


class Column:
    """The first column of an Arrow IPC file with one record batch.

    Raises BadInput for a file that is missing, of another size, or changed.
    """

    def __init__(self, artifact: Artifact, name: str):
        self._artifact, self._path = artifact, artifact.data(name).sized()
        self._hashes = artifact.manifest.files[name].blocks
        self._unverified = np.ones(len(self._hashes), bool)
        self._left = len(self._hashes)
        for block in {0, max(self._left - 2, 0), self._left - 1}:
            self._verify(block)  # the blocks with Arrow's own framing, before Arrow sees them
        with self._path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        column = pa.ipc.open_file(pa.py_buffer(self._map)).get_batch(0).column(0)
        self._values: np.ndarray = column.to_numpy(zero_copy_only=True)
        whole = np.frombuffer(self._map, np.uint8)
        self._offset = self._values.ctypes.data - whole.ctypes.data
        self._windows = (0, self._values)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return len(self._map)

    def at(self, index_B: np.ndarray) -> np.ndarray:
        """The numbers at some places."""
        return self.windows(index_B, 1)[:, 0]

    def span(self, start: int, stop: int) -> np.ndarray:
        """The numbers from `start` to before `stop`, as they lie in the file: not a copy."""
        if self._left:
            self._verify_windows(np.array([start]), stop - start)
        return self._values[start:stop]

    def windows(self, start_B: np.ndarray, length: int) -> np.ndarray:
        """A copy [B, length] of the windows that begin at some places; nothing else is read."""
        if self._left:
            self._verify_windows(start_B, length)
        if self._windows[0] != length:
            view = np.lib.stride_tricks.sliding_window_view(self._values, length)
            self._windows = (length, view)
        return self._windows[1][start_B]

    def release(self) -> None:
        """Give back the memory of the pages read so far; the system's cache keeps their content."""
        self._map.madvise(mmap.MADV_DONTNEED)

    def _verify_windows(self, start_B: np.ndarray, length: int) -> None:
        first_B = (self._offset + start_B * self._values.itemsize) // BLOCK_BYTES
        end_B = self._offset + (start_B + length) * self._values.itemsize
        last_B = (end_B - 1) // BLOCK_BYTES
        for ahead in range(int((last_B - first_B).max()) + 1):
            blocks = np.unique(np.minimum(first_B + ahead, last_B))
            for block in blocks[self._unverified[blocks]]:
                self._verify(int(block))

    def _verify(self, block: int) -> None:
        if not self._unverified[block]:
            return
        begin = block * BLOCK_BYTES
        with self._path.open("rb") as file:
            file.seek(begin)
            found = hashlib.sha256(file.read(BLOCK_BYTES)).hexdigest()
        if found != self._hashes[block]:
            raise BadInput(
                f"{self._path}: block {block} (bytes {begin} to {begin + BLOCK_BYTES}) changed: "
                f"SHA-256 {found[:12]}, its manifest says {self._hashes[block][:12]}; run "
                f"`headrace run RECIPE --rebuild {self._artifact.manifest.stage}`"
            )
        self._unverified[block] = False
        self._left -= 1
