"""The search for duplicates over all blocks, as phases whose results are kept when killed.

1. signatures   per block: hashes, signatures, band keys
2. (here)     equal hashes and band keys connect documents to components, packed into partitions
3. packed     per block: the candidates, sorted by partition
4. verdicts   per partition: who goes, by comparing texts and shingle sets
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cluster.store import Draft
from tasks.data.blocks import SMALL_BYTES
from tasks.data.deduplication.candidates import find_candidates
from tasks.data.deduplication.decisions import FACTS, VERDICTS, Facts, Rule, judge
from tasks.data.deduplication.partitions import Partition, Selection, pack_block
from tasks.data.deduplication.phases import load, phase
from tasks.data.deduplication.signatures import Block, sign_block


@dataclass(frozen=True)
class Found:
    """The documents to remove (`numbers`, ascending); for each, which one stays (`keepers`), the id
    of that one (`copy_of`), and whether it is a near duplicate. The signatures are files by block.
    """

    numbers: npt.NDArray[np.int64]
    keepers: npt.NDArray[np.int64]
    near: npt.NDArray[np.bool_]
    copy_of: pa.ChunkedArray
    signatures: list[Path]
    facts: Facts

    def within(
        self, block: Block
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_], list[str]]:
        """The rows of a block to remove, whether each is a near duplicate, and of which id."""
        first, last = np.searchsorted(self.numbers, [block.start, block.start + block.rows])
        ids = self.copy_of[first:last].to_pylist()
        return self.numbers[first:last] - block.start, self.near[first:last], ids


def find_duplicates(draft: Draft, blocks: Sequence[Block], rule: Rule) -> Found:
    """The duplicates in these blocks, of which fixed ones come first."""
    at_once = workers(draft, blocks)
    signatures = phase(
        draft, "signatures", partial(sign_block, rule.signature_family), blocks, at_once
    )
    fixed = sum(block.rows for block in blocks if block.fixed)
    candidates = find_candidates(signatures, fixed, rule.exact, rule.threshold is not None)
    selections = [
        Selection(block, path, candidates.partitions[rows], candidates.twins[rows])
        for block, path in zip(blocks, signatures, strict=True)
        for rows in [slice(block.start, block.start + block.rows)]
    ]
    packed = phase(draft, "packed", pack_block, selections, at_once)
    partitions = [Partition(number, tuple(packed)) for number in range(candidates.count)]
    verdicts = phase(draft, "verdicts", partial(judge, rule), partitions, at_once)
    return _gathered(signatures, [load(path) for path in verdicts])


def workers(draft: Draft, blocks: Sequence[Block]) -> int | None:
    """How many blocks to work on side by side; one where starting workers costs more."""
    small = sum(block.size for block in blocks) < SMALL_BYTES
    return 1 if small else draft.placement.data_workers


def _gathered(signatures: list[Path], verdicts: list[pa.Table]) -> Found:
    facts = Facts()
    for table in verdicts:
        facts.add(Facts(**json.loads(table.schema.metadata[FACTS])))
    bare = [table.replace_schema_metadata() for table in verdicts]
    whole = pa.concat_tables([VERDICTS.empty_table(), *bare]).sort_by("number")
    numbers, keepers, near = (whole[name].to_numpy() for name in VERDICTS.names[:3])
    return Found(numbers, keepers, near, whole["copy_of"], signatures, facts)
