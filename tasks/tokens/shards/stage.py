"""Token shards: the text as memory-mapped Arrow IPC files, split into training and held-out text.

    train-00000.arrow, ...    one record batch with one column `tokens`, uint16 or uint32
    heldout-00000.arrow, ...  the same
    documents.arrow           a row per document: split, shard, start and length in tokens (the
                              end-of-document token that follows it included), bytes, id, source

A document lies in one shard. Its split depends on its text alone, so identical documents never lie
on both sides, and neither order nor company of the documents matters.
"""

import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.manifest import Ledger
from cluster.stage import stage
from cluster.store import Draft
from tasks.tokens.encoder import Encoder, load
from tasks.tokens.shards.facts import EncodingFacts
from tasks.tokens.shards.settings import SPLITS, ShardSettings

if TYPE_CHECKING:
    import numpy as np

    from tasks.tokens.shards.writer import ShardWriter

SHOWN = 10
log = logging.getLogger("headrace.shards")


@stage(version=1)
def shards(text: Artifact, tokenizer: Artifact, settings: ShardSettings, draft: Draft) -> None:
    """Encode every document and append it, with an end-of-document token, to its split's shards.

    The text is encoded block by block, by gigatoken where it gives the ids of `tokenizers`.
    Facts: `vocab_size`, `dtype`, `eod`, `tokenizer_sha256`, `encoded_by`, `bytes_per_token`,
    `fertility` (tokens per word), `vocabulary_use` (share of ids that occur), the `rarest` and the
    `longest` tokens that occur, each with its count, and for each split its `documents`, `tokens`,
    `bytes` (UTF-8 text without end-of-document tokens) and the tokens of each of its `shards`.
    Raises BadInput when a split gets no document.
    """
    from tasks.data.blocks import forget_blocks
    from tasks.tokens.native import Disagreement, native

    encoder = load(tokenizer)
    engine = native(encoder.definition, encoder.roles.end)
    try:
        _write(text, encoder, engine is not None, settings, draft)
    except Disagreement as error:
        log.warning("gigatoken differs from `tokenizers` %s; all is encoded by the latter", error)
        forget_blocks(draft)
        engine = None
        _write(text, encoder, False, settings, draft)
    draft.facts["encoded_by"] = engine.name if engine else "tokenizers"


def _write(
    text: Artifact, encoder: Encoder, use_native: bool, settings: ShardSettings, draft: Draft
) -> None:
    from tasks.data.blocks import forgetting, full_disk_named, make_blocks, text_sizes
    from tasks.data.text import PATTERN, check_rows
    from tasks.tokens.shards.encode import encode_block
    from tasks.tokens.shards.writer import ShardWriter

    files = text.files(PATTERN)
    work = partial(encode_block, encoder, use_native, settings)
    writer = ShardWriter(draft.path, SPLITS, encoder.ids, settings.shard_tokens)
    with full_disk_named(draft.path), writer:
        empty, not_kept, words = _gather(make_blocks(draft, files, work, text_sizes(files)), writer)
    with forgetting(draft):
        check_rows(text, writer.documents + empty + not_kept)
    _check_splits(text, writer, settings)
    draft.rows, draft.tokens = writer.documents, writer.splits["train"].tokens
    draft.ledger = _ledger(writer.documents, {"empty": empty, "not_kept": not_kept})
    draft.facts = _facts(writer, encoder, words)


def _gather(folders: Iterator[Path], writer: "ShardWriter") -> tuple[int, int, int]:
    """Append the blocks in order; how many rows had no text, how many were not among those to be
    kept, and the words of the others.
    """
    import numpy as np

    from tasks.tokens.shards.encode import read_block

    empty = not_kept = words = 0
    for folder in folders:
        block = read_block(folder, writer.dtype)
        held_N = block.documents["heldout"].to_numpy()
        writer.extend(np.where(held_N, "heldout", "train"), block.tokens, block.documents)
        empty, words = empty + block.empty, words + block.words
        not_kept += block.not_kept
    return empty, not_kept, words


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


def _ledger(documents: int, rejects: dict[str, int]) -> Ledger:
    counts: dict[str, Any] = {"in": documents + sum(rejects.values()), "out": documents}
    return Ledger(**counts, rejects={reason: n for reason, n in rejects.items() if n})


def _facts(writer: "ShardWriter", encoder: Encoder, words: int) -> dict[str, Any]:
    import numpy as np

    size, tokens = sum(split.bytes for split in writer.splits.values()), writer.tokens
    occur, counts = np.flatnonzero(writer.counts), writer.counts
    plain = np.setdiff1d(occur, list(encoder.special_ids))
    rarest = plain[np.argsort(counts[plain], kind="stable")[:SHOWN]].tolist()
    encoding = EncodingFacts(
        tokenizer_sha256=encoder.sha256,
        bytes_per_token=size / (tokens - writer.documents),
        fertility=(tokens - writer.documents) / max(words, 1),
        vocabulary_use=len(occur) / encoder.vocab_size,
        rarest=_shown(encoder, counts, rarest),
        longest=_shown(encoder, counts, encoder.longest(SHOWN, plain)),
    )
    return writer.facts(encoder.eod).noted() | encoding.noted()


def _shown(encoder: Encoder, counts: "np.ndarray", ids: list[int]) -> tuple[tuple[str, int], ...]:
    return tuple((encoder.decode([index]), int(counts[index])) for index in ids)
