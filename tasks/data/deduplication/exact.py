"""Exact duplicates of a partition: which documents have equal normalised texts.

Hashes say what to compare; the texts decide. Documents whose hash nobody shares are not looked at.
"""

import numpy as np
import pyarrow as pa

from tasks.data.deduplication.partitions import PIECE_BYTES, Partition
from tasks.data.kernels import kernel
from tasks.data.kernels.buffers import Bytes, Offsets, text_buffer
from tasks.data.kernels.words import Hashes


def first_equals(partition: Partition, twin_bytes: int, size: int) -> Offsets:
    """For each of the partition's documents the place of the first with an equal text (or its own).

    Several passes over the partition, by hash, when the texts to compare are more than a piece.
    """
    firsts = np.arange(size)
    passes = twin_bytes // PIECE_BYTES + 1 if twin_bytes else 0
    for turn in range(passes):
        known = KNOWN.empty_table()
        place = 0
        for piece in partition.pieces(["twin", "exact", "text"]):
            hashes = piece["exact"].to_numpy()
            chosen = piece["twin"].to_numpy() & (hashes % np.uint64(passes) == turn)
            places = place + np.flatnonzero(chosen)
            columns = [places, hashes[chosen], piece["text"].filter(pa.array(chosen))]
            known = pa.concat_tables([known, pa.table(columns, schema=KNOWN)]).combine_chunks()
            known = _settle(known, firsts)
            place += piece.num_rows
    return firsts


KNOWN = pa.schema([("place", pa.int64()), ("exact", pa.uint64()), ("text", pa.large_string())])


def _settle(known: pa.Table, firsts: Offsets) -> pa.Table:
    """Write the firsts of these documents; what remains are the different texts."""
    places, hashes = known["place"].to_numpy(), known["exact"].to_numpy()
    equals = np.arange(len(places))
    _find_equals(*text_buffer(known["text"]), hashes, np.argsort(hashes, kind="stable"), equals)
    new = equals != np.arange(len(places))
    firsts[places[new]] = places[equals[new]]
    return known.filter(pa.array(~new))


@kernel
def _find_equals(
    data: Bytes, offsets: Offsets, hashes: Hashes, order: Offsets, equals: Offsets
) -> None:
    start = 0
    for j in range(len(order)):
        text = order[j]
        if hashes[text] != hashes[order[start]]:
            start = j
        for k in range(start, j):
            other = order[k]
            if equals[other] == other and _equal(data, offsets, text, other):
                equals[text] = other
                break


@kernel
def _equal(data: Bytes, offsets: Offsets, a: int, b: int) -> bool:
    length = offsets[a + 1] - offsets[a]
    if offsets[b + 1] - offsets[b] != length:
        return False
    for j in range(length):  # noqa: SIM110 (a kernel has no `all`)
        if data[offsets[a] + j] != data[offsets[b] + j]:
            return False
    return True
