"""Token shards: the text as memory-mapped Arrow IPC files, split into training and held-out text.

    train-00000.arrow, ...    one record batch with one column `tokens`, uint16 or uint32
    heldout-00000.arrow, ...  the same
    documents.arrow           a row per document: split, shard, start and length in tokens (the
                              end-of-document token that follows it included), bytes, id, source

A document lies in one shard. Its split depends on its text alone, so identical documents never lie
on both sides, and neither order nor company of the documents matters.
"""

import hashlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pydantic import Field

from cluster.artifact import Artifact, Ledger
from cluster.errors import BadInput
from cluster.settings import Settings
from cluster.stage import stage
from cluster.store import Draft
from tasks.tokens.encoder import Encoder, load

if TYPE_CHECKING:
    from tasks.tokens.shard_writer import ShardWriter

SPLITS = ("train", "heldout")
COLUMNS = ["id", "text", "source"]
log = logging.getLogger("headrace.shards")


class ShardSettings(Settings):
    """How the tokens are split and stored."""

    heldout_share: float = Field(
        0.05, gt=0, lt=1, description="share of the documents kept out of training"
    )
    shard_tokens: int = Field(
        1 << 25, ge=1, description="tokens after which a shard is full and the next one begins"
    )


@stage(version=1)
def shards(text: Artifact, tokenizer: Artifact, settings: ShardSettings, draft: Draft) -> None:
    """Encode every document and append it, with an end-of-document token, to its split's shards.

    Facts: `vocab_size`, `dtype`, `eod`, `tokenizer_sha256`, `bytes_per_token`, `vocabulary_use`
    (share of ids that occur), and for each split its `documents`, `tokens`, `bytes` (UTF-8 text
    without end-of-document tokens) and the tokens of each of its `shards`.
    Raises BadInput when a split gets no document.
    """
    from tasks.tokens.shard_writer import ShardWriter

    encoder = load(tokenizer)
    empty = 0
    with ShardWriter(draft.path, SPLITS, encoder.vocab_size, settings.shard_tokens) as writer:
        for rows in _batches(text):
            filled = [row for row in rows if row["text"]]
            empty += len(rows) - len(filled)
            _append(writer, encoder, filled, settings.heldout_share)
            done = writer.documents + empty
            draft.progress(
                done, text.manifest.rows or done, "documents", tokens=float(writer.tokens)
            )
    _check_splits(text, writer, settings)
    draft.rows, draft.tokens = writer.documents, writer.splits["train"].tokens
    draft.ledger = _ledger(writer.documents, empty)
    draft.facts = _facts(writer, encoder)


def heldout(text: bytes, share: float) -> bool:
    """Whether a document is kept out of training: its hash, as a fraction, is below the share."""
    return int.from_bytes(hashlib.sha256(text).digest()[:8]) < share * 2**64


def _batches(text: Artifact) -> Iterator[list[dict[str, Any]]]:
    from tasks.data.text import read_batches

    for batch in read_batches(text, COLUMNS):
        yield batch.to_pylist()


def _append(
    writer: "ShardWriter", encoder: Encoder, rows: list[dict[str, Any]], share: float
) -> None:
    encoded = encoder.encode_batch([row["text"] for row in rows])
    for row, ids in zip(rows, encoded, strict=True):
        raw = row["text"].encode()
        split = "heldout" if heldout(raw, share) else "train"
        writer.add(
            split, [*ids, encoder.eod], size=len(raw), document=row["id"], source=row["source"]
        )


def _check_splits(text: Artifact, writer: "ShardWriter", settings: ShardSettings) -> None:
    if not writer.documents:
        raise BadInput(
            f"{text.name} holds no text; `headrace show {text.name}` shows what the stages before "
            "it rejected, and why"
        )
    for name, split in writer.splits.items():
        if not split.documents:
            way = "raise" if name == "heldout" else "lower"
            raise BadInput(
                f"none of {writer.documents} documents fell to the {name} split with "
                f"heldout_share {settings.heldout_share}; give more documents or {way} it: "
                "`headrace run --set shards.heldout_share=...`"
            )


def _ledger(documents: int, empty: int) -> Ledger:
    counts: dict[str, Any] = {"in": documents + empty, "out": documents}
    return Ledger(**counts, rejects={"empty": empty} if empty else {})


def _facts(writer: "ShardWriter", encoder: Encoder) -> dict[str, Any]:
    splits = {name: split.facts() for name, split in writer.splits.items()}
    size = sum(split["bytes"] for split in splits.values())
    return splits | {
        "vocab_size": encoder.vocab_size,
        "dtype": writer.dtype.name,
        "eod": encoder.eod,
        "tokenizer_sha256": encoder.sha256,
        "bytes_per_token": size / (writer.tokens - writer.documents),
        "vocabulary_use": writer.ids_used / encoder.vocab_size,
    }
