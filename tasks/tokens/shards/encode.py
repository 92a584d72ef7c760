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
from tasks.tokens.shards.tallies import tally_words
from tasks.tokens.shards.writer import narrow

COLUMNS = ["id", "text", "source"]


class Block(NamedTuple):
    """The documents of one block and their tokens, end to end."""

    tokens: np.ndarray
    documents: pa.Table
    empty: int
    words: int


def encode_block(
    encoder: Encoder, use_native: bool, heldout_share: float, _: int, file: DataFile, folder: Path
) -> None:
    """Encode one file of a text artifact into a folder. Raises Disagreement, see `native`."""
    engine = native(encoder.definition, encoder.roles.end) if use_native else None
    tokens, documents = [], []
    about = {"empty": 0, "words": 0}
    for batch in file_batches(file, COLUMNS):
        filled = batch.filter(pc.greater(pc.binary_length(batch.column("text")), 0))
        about["empty"] += batch.num_rows - filled.num_rows
        if not filled.num_rows:
            continue
        texts = filled.column("text")
        ids = encode_batch(encoder, engine, texts)
        ends = np.flatnonzero(ids == encoder.eod)
        tokens.append(narrow(ids, encoder.ids))
        documents.append(_describe(filled, np.diff(ends, prepend=-1), heldout_share))
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


def _describe(batch: pa.RecordBatch, lengths: np.ndarray, heldout_share: float) -> pa.RecordBatch:
    data, offsets = text_buffer(batch.column("text"))
    raw, places = data.data, offsets.tolist()
    held = [heldout(raw[begin:end], heldout_share) for begin, end in pairwise(places)]
    columns = [batch.column("id"), batch.column("source"), np.diff(offsets), lengths, held]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    return pa.record_batch(arrays, schema=SCHEMA)


def heldout(text: bytes | memoryview, share: float) -> bool:
    """Whether a document is kept out of training: its hash, as a fraction, is below the share."""
    return int.from_bytes(hashlib.sha256(text).digest()[:8]) < share * 2**64
