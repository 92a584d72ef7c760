"""Text to token ids, block by block: each worker leaves its block's tokens and documents in a file.

tokens.bin       the ids of the block's documents, an end-of-document token after each
documents.arrow  a row per document: id, source, bytes, length in tokens, whether held out
block.json       rows without text, words
"""

import hashlib
import json
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cluster.artifact import DataFile
from tasks.data.kernels.buffers import text_buffer
from tasks.data.text import file_batches
from tasks.tokens.encoder import Encoder
from tasks.tokens.native import encode_batch, native
from tasks.tokens.shards.settings import ShardSettings
from tasks.tokens.shards.tallies import tally_words
from tasks.tokens.shards.writer import narrow

COLUMNS = ["id", "text", "source"]


class Block(NamedTuple):
    """The documents of one block and their tokens, end to end."""

    tokens: np.ndarray
    documents: pa.Table
    empty: int
    words: int
    not_kept: int


def encode_block(
    encoder: Encoder,
    use_native: bool,
    settings: ShardSettings,
    _: int,
    file: DataFile,
    folder: Path,
) -> None:
    """Encode one file of a text artifact into a folder. Raises Disagreement, see `native`."""
    engine = native(encoder.definition, encoder.roles.end) if use_native else None
    tokens, documents = [], []
    about = {"empty": 0, "words": 0, "not_kept": 0}
    for batch in file_batches(file, COLUMNS):
        filled = batch.filter(pc.greater(pc.binary_length(batch.column("text")), 0))
        about["empty"] += batch.num_rows - filled.num_rows
        held_N, kept_N = _sides(filled, settings)
        about["not_kept"] += int((~kept_N).sum())
        if not kept_N.any():
            continue
        filled = filled.filter(pa.array(kept_N))
        texts = filled.column("text")
        ids = encode_batch(encoder, engine, texts)
        ends = np.flatnonzero(ids == encoder.eod)
        tokens.append(narrow(ids, encoder.ids))
        documents.append(_describe(filled, np.diff(ends, prepend=-1), held_N[kept_N]))
        about["words"] += int(tally_words(*text_buffer(texts)))
    # NumPy's own way to write a file forgets the system's error when a disk is full.
    with pa.OSFile(str(folder / "tokens.bin"), "wb") as out:
        for ids in tokens:
            out.write(ids)
    with pa.ipc.new_file(str(folder / "documents.arrow"), SCHEMA) as out:
        for rows in documents:
            out.write_batch(rows)
    (folder / "block.json").write_text(json.dumps(about))


def read_block(folder: Path, dtype: "np.dtype[Any]") -> Block:
    """What `encode_block` left, with tokens of the vocabulary's type."""
    with pa.OSFile(str(folder / "documents.arrow")) as file:
        documents = pa.ipc.open_file(file).read_all()
    about: dict[str, Any] = json.loads((folder / "block.json").read_text())
    return Block(np.fromfile(folder / "tokens.bin", dtype), documents, **about)


SCHEMA = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("source", pa.string()),
        pa.field("bytes", pa.int64()),
        pa.field("length", pa.int64()),
        pa.field("heldout", pa.bool_()),
    ]
)


def _sides(batch: pa.RecordBatch, settings: ShardSettings) -> tuple[np.ndarray, np.ndarray]:
    """Which documents are held out [N], and which of all are kept [N]."""
    data, offsets = text_buffer(batch.column("text"))
    raw, places = data.data, offsets.tolist()
    share, most = settings.heldout_share, kept_share(settings)
    sides = [
        (heldout(raw[begin:end], share), heldout(raw[begin:end], most))
        for begin, end in pairwise(places)
    ]
    held_N, kept_N = np.array(sides, dtype=bool).reshape(-1, 2).T
    return held_N, kept_N


def kept_share(settings: ShardSettings) -> float:
    """The share of all documents that are kept: those held out, and some of the others."""
    held = settings.heldout_share
    return held + (1 - held) * settings.train_share


def _describe(batch: pa.RecordBatch, lengths: np.ndarray, held_N: np.ndarray) -> pa.RecordBatch:
    _, offsets = text_buffer(batch.column("text"))
    columns = [batch.column("id"), batch.column("source"), np.diff(offsets), lengths, held_N]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    return pa.record_batch(arrays, schema=SCHEMA)


def heldout(text: bytes | memoryview, share: float) -> bool:
    """Whether a document is kept out of training: its hash, as a fraction, is below the share."""
    return int.from_bytes(hashlib.sha256(text).digest()[:8]) < share * 2**64
