"""The rows of a block split: duplicates set aside, repeated text cut from what stays."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cluster.artifact import Artifact
from cluster.handover import here
from cluster.store import Draft
from tasks.data.blocks import split_blocks
from tasks.data.deduplication.decisions import Rule
from tasks.data.deduplication.lines import Lines
from tasks.data.deduplication.passages import Marks, Passages
from tasks.data.deduplication.phases import phase
from tasks.data.deduplication.search import Found, find_duplicates, workers
from tasks.data.deduplication.signatures import (
    Block,
    block_of,
    blocks_of,
    keep_signatures,
    sign_block,
)
from tasks.data.deduplication.spans import Repeats, Spans, cut, find_repeats, together
from tasks.data.kernels.buffers import text_buffer
from tasks.data.ledger import Account, Splitter
from tasks.data.privacy.pii import mask

EXACT, NEAR = "exact_duplicate", "near_duplicate"
LINES, PASSAGES = "lines", "passages"
SAMPLE_CHARS = 200


@dataclass(frozen=True)
class Removal:
    """A block, its rows to remove with what stays for each, and the repeats to cut from others."""

    block: Block
    removed: npt.NDArray[np.int64]
    near: npt.NDArray[np.bool_]
    copy_of: list[str]
    repeats: dict[str, Repeats] = field(default_factory=dict)

    @property
    def reasons(self) -> dict[int, tuple[str, str]]:
        """Why rows go, and the id of which document stays, by their number."""
        numbers = (self.block.start + self.removed).tolist()
        kinds = (NEAR if near else EXACT for near in self.near)
        return dict(zip(numbers, zip(kinds, self.copy_of, strict=True), strict=True))


def deduplicate(
    draft: Draft,
    text: Artifact,
    earlier: Sequence[Artifact],
    rule: Rule,
    line_words: int | None,
    passage_words: int | None,
) -> tuple[Found, Account]:
    """Find the duplicates and remove them; the draft gets the text that stays, its index, and the
    ledger.

    Lines of `line_words` words or more and runs of `passage_words` words are cut where the same
    stands earlier; None: they are not looked at.
    """
    fixed: list[Block] = []
    for artifact in earlier:
        fixed += blocks_of(artifact, rows_of(fixed), indexed=True)
    new = blocks_of(text, rows_of(fixed))
    blocks = [*fixed, *new]
    found = find_duplicates(draft, blocks, rule)
    work = [Removal(block, *found.within(block)) for block in blocks]
    if line_words is not None:
        lines = find_repeats(draft, LINES, blocks, found, [Lines(line_words)] * len(blocks))
        work = _with(work, LINES, lines)
    if passage_words is not None:
        work = _with(work, PASSAGES, _find_passages(draft, blocks, found, passage_words))
    work = work[len(fixed) :]
    account = split_blocks(draft, work, _split, [b.size for b in new])
    account.close(draft)
    cut_text = line_words is not None or passage_words is not None
    _write_index(draft, work, found.signatures[len(fixed) :], rule, cut_text)
    return found, account


def _find_passages(
    draft: Draft, blocks: Sequence[Block], found: Found, words: int
) -> list[Repeats]:
    marks = find_repeats(draft, "marks", blocks, found, [Marks(words)] * len(blocks))
    finders = [Passages(words, repeats) for repeats in marks]
    return find_repeats(draft, PASSAGES, blocks, found, finders)


def _with(work: Sequence[Removal], kind: str, found: Sequence[Repeats]) -> list[Removal]:
    return [
        replace(w, repeats=w.repeats | {kind: repeats})
        for w, repeats in zip(work, found, strict=True)
    ]


def rows_of(blocks: Sequence[Block]) -> int:
    """How many documents these blocks have."""
    return sum(block.rows for block in blocks)


def _split(work: Removal, rows: Splitter) -> None:
    work = deepcopy(work)  # its caches are freed with the copy; the list of all work lives on
    reasons = work.reasons
    for first, batch in work.block.batches():
        numbers = range(first, first + batch.num_rows)
        copies = {n - first: reasons[n][1] for n in numbers if n in reasons}
        verdicts = [reasons[n][0] if n in reasons else None for n in numbers]
        if work.repeats:
            stays = np.array([verdict is None for verdict in verdicts])
            found = {kind: r.later(batch["text"], first) for kind, r in work.repeats.items()}
            found = {kind: spans.where(stays[spans.texts]) for kind, spans in found.items()}
            batch, empty = _without(batch, found, rows.account)
            verdicts = [v or empty.get(row) for row, v in enumerate(verdicts)]
        rows.split(batch, verdicts, copies)


def _without(
    batch: pa.RecordBatch, found: dict[str, Spans], account: Account
) -> tuple[pa.RecordBatch, dict[int, str]]:
    """The batch without these spans, and why rows go of which nothing is left.

    Those keep their text: it is their sample among the rejects.
    """
    texts = batch["text"]
    shorter = cut(texts, together(list(found.values())))
    blank = pc.equal(pc.binary_length(pc.utf8_trim_whitespace(shorter)), 0)
    gone = blank.to_numpy(zero_copy_only=False)
    empty: dict[int, str] = {}
    for kind, spans in found.items():
        rows = np.unique(spans.texts[gone[spans.texts]]).tolist()
        empty |= dict.fromkeys(rows, f"repeated_{kind}")
        found[kind] = spans.where(~gone[spans.texts])
        _count(kind, found[kind], batch, account)
    index = batch.schema.get_field_index("text")
    return batch.set_column(index, "text", cut(texts, together(list(found.values())))), empty


def _count(kind: str, spans: Spans, batch: pa.RecordBatch, account: Account) -> None:
    """What is cut: runs of one kind that overlap are one. A block gives one sample of a kind."""
    texts, begins, ends = spans.texts, spans.begins, spans.ends
    if not len(texts):
        return
    new = np.ones(len(texts), np.bool_)
    new[1:] = (texts[1:] != texts[:-1]) | (begins[1:] >= ends[:-1])
    starts = np.flatnonzero(new)
    stops = ends[np.append(starts[1:], len(ends)) - 1]
    account.counts.update(
        {
            kind: len(starts),
            f"{kind}_documents": len(np.unique(texts)),
            f"{kind}_bytes": int((stops - begins[starts]).sum()),
        }
    )
    if not any(note["kind"] == kind for note in account.notes):
        data, _ = text_buffer(batch["text"])
        content = data[begins[0] : stops[0]].tobytes().decode()
        sample = mask(content.strip()[:SAMPLE_CHARS])
        id = batch["id"][int(texts[0])].as_py()
        account.notes.append({"kind": kind, "id": id, "text": sample})


def _write_index(
    draft: Draft, work: Sequence[Removal], signatures: Sequence[Path], rule: Rule, cut_text: bool
) -> None:
    """The signatures of what stays, one file for the text files of a block."""
    at_once = workers(draft, [w.block for w in work])
    if cut_text:  # other texts than those that were signed
        kept = [block_of(sorted(draft.path.glob(f"text-{n:05d}-*"))) for n in range(len(work))]
        paths = phase(draft, "index", partial(sign_block, rule.signature_family), kept, at_once)
    else:
        removed = [(path, w.removed) for path, w in zip(signatures, work, strict=True)]
        paths = phase(draft, "index", keep_signatures, removed, at_once)
    for number, path in enumerate(paths):
        (draft.path / f"index-{number:05d}.arrow").hardlink_to(here(path))
