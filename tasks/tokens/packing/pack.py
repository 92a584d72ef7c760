"""The engine of stage `packing`. N documents, M pieces, R samples."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.store import Draft
from tasks.data.kernels import kernel
from tasks.tokens.packing.settings import PackingSettings
from tasks.tokens.shards.documents import documents_by_source


@dataclass(frozen=True)
class Pieces:
    """Pieces of one source in the order of its samples, and where each sample's end, [R]."""

    start_M: np.ndarray
    length_M: np.ndarray
    end_R: np.ndarray


def pack(shards: Artifact, settings: PackingSettings, draft: Draft) -> None:
    """Write the index and its figures; see the stage."""
    found, sources = [], []
    documents = documents_by_source(shards, "train")
    for done, (name, (start_N, length_N)) in enumerate(documents.items()):
        if settings.kind == "concatenate":
            pieces = concatenate(start_N, length_N, settings.context)
        else:
            pieces = cut(start_N, length_N, settings.context)
            if settings.kind == "best_fit":
                pieces = best_fit(pieces, settings.context)
        found.append(pieces)
        sources.append(_describe(name, start_N, length_N, pieces))
        draft.progress(done + 1, len(documents), "sources")
    if not sum(source["samples"] for source in sources):
        raise BadInput(
            f"no source of {shards.name} fills a sample of {settings.context} tokens; lower "
            "`pretrain.context` or give more text"
        )
    _write(draft.path, found)
    draft.facts = {"kind": settings.kind, "context": settings.context, "sources": sources}
    draft.metrics = _figures(sources, settings.context)
    draft.rows = sum(source["samples"] for source in sources)
    draft.tokens = sum(source["tokens"] for source in sources)


def concatenate(start_N: np.ndarray, length_N: np.ndarray, context: int) -> Pieces:
    """The documents end to end, cut every `context` tokens; a piece may hold many documents."""
    # Where the source's documents do not lie side by side a new run begins: no piece spans a gap.
    first = np.flatnonzero(np.r_[True, start_N[1:] != start_N[:-1] + length_N[:-1]])
    run_start, run_end = start_N[first], np.cumsum(length_N)[np.r_[first[1:] - 1, -1]]
    run_begin = np.r_[0, run_end[:-1]]
    samples = int(run_end[-1]) // context
    border_R = np.arange(1, samples + 1) * context
    # A piece ends with its sample or with its run, whichever comes first.
    end_M = np.union1d(border_R, run_end[run_end < samples * context])
    length_M = np.diff(end_M, prepend=0)
    begin_M = end_M - length_M
    run_M = np.searchsorted(run_begin, begin_M, side="right") - 1
    start_M = run_start[run_M] + begin_M - run_begin[run_M]
    return Pieces(start_M, length_M, np.searchsorted(end_M, border_R) + 1)


def cut(start_N: np.ndarray, length_N: np.ndarray, context: int) -> Pieces:
    """Each document in pieces of `context` tokens and a last one, each a sample of its own."""
    pieces_N = -(-length_N // context)
    document_M = np.repeat(np.arange(len(start_N)), pieces_N)
    number_M = np.arange(len(document_M)) - np.repeat(np.cumsum(pieces_N) - pieces_N, pieces_N)
    start_M = start_N[document_M] + number_M * context
    length_M = np.minimum(length_N[document_M] - number_M * context, context)
    return Pieces(start_M, length_M, np.arange(1, len(start_M) + 1))


def best_fit(pieces: Pieces, context: int) -> Pieces:
    """Longest first, each into the sample with the least room that takes it, or a new one."""
    # Stable: of pieces of one length the first goes first, on every machine.
    order_M = np.argsort(-pieces.length_M, kind="stable")
    length_M = pieces.length_M[order_M]
    sample_M = np.empty(len(length_M), np.int64)
    samples = _fill(length_M, context, sample_M)
    by_sample = np.argsort(sample_M, kind="stable")
    end_R = np.cumsum(np.bincount(sample_M, minlength=samples))
    return Pieces(pieces.start_M[order_M[by_sample]], length_M[by_sample], end_R)


@kernel
def _fill(length_M: Any, context: int, sample_M: Any) -> int:
    """The sample of each piece; the number of samples.

    Samples with the same room are a stack. Which rooms there are is the lowest level of a binary
    tree of flags, in which the least room of at least some size is found in log2(context) steps.
    """
    leaves = 1
    while leaves < context + 1:
        leaves *= 2
    some = np.zeros(2 * leaves, np.bool_)
    # The stacks are chains through `below`, so that the loop asks for no memory.
    top, below = np.full(context + 1, -1, np.int64), np.empty(len(length_M), np.int64)
    samples = 0
    for piece in range(len(length_M)):
        length = length_M[piece]
        room = _least(some, leaves, length)
        if room < 0:
            sample, room = samples, context
            samples += 1
        else:
            sample = top[room]
            top[room] = below[sample]
            if top[room] < 0:
                _mark(some, leaves + room, False)
        sample_M[piece] = sample
        room -= length
        if room:
            below[sample] = top[room]
            top[room] = sample
            _mark(some, leaves + room, True)
    return samples


@kernel
def _least(some: Any, leaves: int, size: int) -> int:
    """The least room from `size` on that some sample has; -1 for none."""
    node = leaves + size
    if some[node]:
        return size
    while node > 1:
        if node % 2 == 0 and some[node + 1]:
            node += 1
            while node < leaves:
                node = 2 * node if some[2 * node] else 2 * node + 1
            return node - leaves
        node //= 2
    return -1


@kernel
def _mark(some: Any, node: int, value: bool) -> None:
    """Set a leaf's flag, and those above it."""
    some[node] = value
    while node > 1:
        node //= 2
        some[node] = some[2 * node] or some[2 * node + 1]


def _describe(
    name: str, start_N: np.ndarray, length_N: np.ndarray, pieces: Pieces
) -> dict[str, Any]:
    tokens = int(pieces.length_M.sum())
    begin_M, end_M = np.sort(pieces.start_M), np.sort(pieces.start_M + pieces.length_M)
    # A piece that begins or ends where no document does has cut one.
    borders = np.setdiff1d(begin_M, start_N), np.setdiff1d(end_M, start_N + length_N)
    inside = np.searchsorted(start_N, borders[0], side="right") - 1
    before = np.searchsorted(start_N, borders[1] - 1, side="right") - 1
    return {
        "name": name,
        "documents": len(start_N),
        "samples": len(pieces.end_R),
        "tokens": tokens,
        "pieces": len(pieces.start_M),
        "cut_documents": len(np.union1d(inside, before)),
        "unused_tokens": int(length_N.sum()) - tokens,
    }


def _figures(sources: list[dict[str, Any]], context: int) -> dict[str, float]:
    total = {
        key: sum(source[key] for source in sources)
        for key in ("documents", "samples", "tokens", "cut_documents", "unused_tokens")
    }
    return {
        "waste": 1 - total["tokens"] / (total["samples"] * context),
        "cut_share": total["cut_documents"] / total["documents"],
        "unused_share": total["unused_tokens"] / (total["tokens"] + total["unused_tokens"]),
    }


def _write(folder: Path, found: list[Pieces]) -> None:
    """The three columns of all sources, one after another."""
    before, ends = 0, []
    for pieces in found:
        ends.append(pieces.end_R + before)
        before += len(pieces.start_M)
    columns = {
        "ends": (ends, np.int64),
        "starts": ([pieces.start_M for pieces in found], np.int64),
        "lengths": ([pieces.length_M for pieces in found], np.int32),
    }
    for name, (parts, dtype) in columns.items():
        values = np.concatenate(parts).astype(dtype)
        batch = pa.record_batch([pa.array(values)], names=[name])
        with pa.ipc.new_file(str(folder / f"{name}.arrow"), batch.schema) as file:
            file.write_batch(batch)
