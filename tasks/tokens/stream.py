"""The tokens of one split as one long stream over memory-mapped shards, verified on first touch.

An Arrow file with a flipped bit loads without complaint, so each 1 MiB block is compared with its
SHA-256 in the manifest before a token of it is handed out for the first time.
"""

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa

from cluster.artifact import BLOCK_BYTES, Artifact
from cluster.errors import BadInput
from tasks.tokens.shards import SPLITS


class TokenStream:
    """`len(stream)` tokens; `read` copies windows out of them. Shards are mapped when needed.

    Raises BadInput for another stage's artifact, an unknown split, and a shard that is missing,
    of another size, or changed.
    """

    def __init__(self, shards: Artifact | Path, split: str):
        artifact = Artifact.load(shards) if isinstance(shards, Path) else shards
        if artifact.manifest.stage != "shards":
            raise BadInput(f"{artifact.name} holds no tokens; name an artifact of the shards stage")
        if split not in SPLITS:
            raise BadInput(f"no split '{split}'; choose from {', '.join(SPLITS)}")
        facts = artifact.manifest.facts
        self.artifact, self.split = artifact, split
        self.dtype = np.dtype(facts["dtype"])
        self.eod: int = facts["eod"]
        self.vocab_size: int = facts["vocab_size"]
        self.text_bytes: int = facts[split]["bytes"]
        self._ends = np.cumsum(facts[split]["shards"])
        self._begins = self._ends - facts[split]["shards"]
        self._names = [f"{split}-{i:05d}.arrow" for i in range(len(self._ends))]
        self._shards: dict[int, Shard] = {}
        for name in self._names:
            artifact.file(name)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def read(self, start_B: np.ndarray, length: int) -> np.ndarray:
        """Windows [B, length] of the shards' own type, each from its start in the stream."""
        out_BL = np.empty((len(start_B), length), self.dtype)
        shard_B = np.searchsorted(self._ends, start_B, side="right")
        inside_B = start_B + length <= self._ends[shard_B]
        for index in np.unique(shard_B[inside_B]):
            rows = np.flatnonzero(inside_B & (shard_B == index))
            out_BL[rows] = self._shard(index).windows(start_B[rows] - self._begins[index], length)
        for row in np.flatnonzero(~inside_B):
            out_BL[row] = self._across(int(start_B[row]), length)
        return out_BL

    def _across(self, start: int, length: int) -> np.ndarray:
        """One window [length] that lies in more than one shard."""
        parts, end = [], start + length
        assert end <= len(self), f"tokens {start} to {end} of a stream of {len(self)}"
        while start < end:
            index = int(np.searchsorted(self._ends, start, side="right"))
            stop = min(end, int(self._ends[index]))
            offset = np.array([start - self._begins[index]])
            parts.append(self._shard(index).windows(offset, stop - start)[0])
            start = stop
        return np.concatenate(parts)

    def _shard(self, index: int) -> "Shard":
        if index not in self._shards:
            self._shards[index] = Shard(self.artifact, self._names[index])
        return self._shards[index]


class Shard:
    """One mapped Arrow file and which of its blocks have been verified."""

    def __init__(self, artifact: Artifact, name: str):
        self._artifact, self._path = artifact, artifact.file(name)
        self._hashes = artifact.manifest.files[name].blocks
        self._bytes = np.memmap(self._path, mode="r")
        self._verified = np.zeros(len(self._hashes), bool)
        for block in {0, max(len(self._hashes) - 2, 0), len(self._hashes) - 1}:
            self._verify(block)  # the blocks with Arrow's own framing, before Arrow sees them
        source = pa.BufferReader(pa.py_buffer(self._bytes))
        column = pa.ipc.open_file(source).get_batch(0).column(0)
        self.tokens = column.to_numpy(zero_copy_only=True)
        self._offset = self.tokens.ctypes.data - self._bytes.ctypes.data

    def windows(self, start_B: np.ndarray, length: int) -> np.ndarray:
        """Windows [B, length] from each start in this shard; nothing else of it is read."""
        if not self._verified.all():
            self._verify_windows(start_B, length)
        return np.lib.stride_tricks.sliding_window_view(self.tokens, length)[start_B]

    def _verify_windows(self, start_B: np.ndarray, length: int) -> None:
        first_B = (self._offset + start_B * self.tokens.itemsize) // BLOCK_BYTES
        end_B = self._offset + (start_B + length) * self.tokens.itemsize
        last_B = (end_B - 1) // BLOCK_BYTES
        for ahead in range(int((last_B - first_B).max()) + 1):
            blocks = np.unique(np.minimum(first_B + ahead, last_B))
            for block in blocks[~self._verified[blocks]]:
                self._verify(int(block))

    def _verify(self, block: int) -> None:
        begin = block * BLOCK_BYTES
        found = hashlib.sha256(self._bytes[begin : begin + BLOCK_BYTES].data).hexdigest()
        if found != self._hashes[block]:
            raise BadInput(
                f"{self._path}: block {block} (bytes {begin} to {begin + BLOCK_BYTES}) changed: "
                f"SHA-256 {found[:12]}, its manifest says {self._hashes[block][:12]}; run "
                f"`headrace run --rebuild {self._artifact.manifest.stage}`"
            )
        self._verified[block] = True
