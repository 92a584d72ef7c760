"""The tokens of one split as one long stream over memory-mapped shards.

Memory stays the same however long the stream is: a shard is mapped when it is first needed, and the
pages that were read are given back before they are many.
"""

from bisect import bisect_right
from pathlib import Path

import numpy as np

from cluster.artifact import Artifact
from cluster.errors import BadInput
from tasks.tokens.shards.columns import Column
from tasks.tokens.shards.facts import ShardFacts
from tasks.tokens.shards.settings import SPLITS

RESIDENT_BYTES = 1 << 27
FAULT_BYTES = 1 << 17
"""What the system maps around a page that is touched."""


class TokenStream:
    """`len(stream)` tokens; `read` copies windows out of them.

    Raises BadInput for another stage's artifact, an unknown split, and a shard that is missing,
    of another size, or changed.
    """

    def __init__(self, shards: Artifact | Path, split: str):
        artifact = Artifact.load(shards) if isinstance(shards, Path) else shards
        if artifact.manifest.stage != "shards":
            raise BadInput(f"{artifact.name} holds no tokens; name an artifact of the shards stage")
        if split not in SPLITS:
            raise BadInput(f"no split '{split}'; choose from {', '.join(SPLITS)}")
        facts = ShardFacts.of(artifact)
        sizes = facts.split(split).shards
        self.artifact, self.split = artifact, split
        self.dtype = np.dtype(facts.dtype)
        self.eod, self.tombstone = facts.eod, facts.tombstone
        self.vocab_size = facts.vocab_size
        self.text_bytes = facts.split(split).bytes
        self._ends = np.cumsum(sizes, dtype=np.int64)
        self.begins = self._ends - sizes
        self._end_list: list[int] = self._ends.tolist()
        self._names = [f"{split}-{i:05d}.arrow" for i in range(len(self._ends))]
        self._shards: dict[int, Column] = {}
        self._mapped = self._touched = 0
        for name in self._names:
            artifact.data(name).check()

    def __len__(self) -> int:
        return self._end_list[-1]

    def read(self, start_B: np.ndarray, length: int) -> np.ndarray:
        """Windows [B, length] of the shards' own type, each from its start in the stream."""
        self._bound_memory(len(start_B) * (FAULT_BYTES + length * self.dtype.itemsize))
        shard_B = np.searchsorted(self._ends, start_B, side="right")
        inside_B = start_B + length <= self._ends[shard_B]
        if len(start_B) and inside_B.all() and (shard_B == shard_B[0]).all():
            begin = self.begins[shard_B[0]]
            return self._shard(int(shard_B[0])).windows(start_B - begin, length)
        out_BL = np.empty((len(start_B), length), self.dtype)
        for index in np.unique(shard_B[inside_B]):
            rows = np.flatnonzero(inside_B & (shard_B == index))
            out_BL[rows] = self._shard(int(index)).windows(
                start_B[rows] - self.begins[index], length
            )
        for row in np.flatnonzero(~inside_B):
            out_BL[row] = self._across(int(start_B[row]), length)
        return out_BL

    def living(self, tokens: np.ndarray) -> np.ndarray:
        """Some tokens, end to end, without tombstones: what there is to decode."""
        flat = tokens.ravel()
        return flat if self.tombstone is None else flat[flat != self.tombstone]

    def span(self, start: int, stop: int) -> np.ndarray:
        """The tokens from `start` to before `stop`; not a copy where they lie in one shard."""
        self._bound_memory(FAULT_BYTES + (stop - start) * self.dtype.itemsize)
        index = bisect_right(self._end_list, start)
        if stop <= self._end_list[index]:
            begin = int(self.begins[index])
            return self._shard(index).span(start - begin, stop - begin)
        return self._across(start, stop - start)

    def _across(self, start: int, length: int) -> np.ndarray:
        """One window [length] that lies in more than one shard."""
        parts, end = [], start + length
        assert end <= len(self), f"tokens {start} to {end} of a stream of {len(self)}"
        while start < end:
            index = bisect_right(self._end_list, start)
            stop, begin = min(end, self._end_list[index]), int(self.begins[index])
            parts.append(self._shard(index).span(start - begin, stop - begin))
            start = stop
        return np.concatenate(parts)

    def _shard(self, index: int) -> Column:
        if index not in self._shards:
            self._shards[index] = shard = Column(self.artifact, self._names[index])
            self._mapped += shard.size
            said = self._end_list[index] - int(self.begins[index])
            if len(shard) != said:
                raise BadInput(
                    f"{self.artifact.path / self._names[index]} has {len(shard)} tokens, its "
                    f"manifest says {said}; run `headrace run RECIPE --rebuild shards`"
                )
        return self._shards[index]

    def _bound_memory(self, size: int) -> None:
        """Account for a read of about `size` bytes."""
        self._touched += size
        if self._touched > RESIDENT_BYTES and self._mapped > RESIDENT_BYTES:
            for shard in self._shards.values():
                shard.release()
            self._touched = 0
