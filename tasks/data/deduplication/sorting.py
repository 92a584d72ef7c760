"""The rows of a block sorted out: duplicates set aside, repeated lines cut from what stays."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cluster.artifact import Artifact
from cluster.store import Draft
from tasks.data.blocks import sort_blocks
from tasks.data.deduplication.lines import (
    Lines,
    Repeated,
    cut,
    find_repeated,
    repeated_in,
    split_lines,
)
from tasks.data.deduplication.phases import phase
from tasks.data.deduplication.search import Found, find_duplicates, workers
from tasks.data.deduplication.sketches import (
    Block,
    block_of,
    blocks_of,
    keep_sketches,
    sketch_block,
)
from tasks.data.deduplication.verdicts import Rule
from tasks.data.kernels.buffers import text_buffer
from tasks.data.ledger import Account, Sorter
from tasks.data.privacy.pii import mask

EXACT, NEAR, CUT = "exact_duplicate", "near_duplicate", "repeated_lines"
SAMPLE_CHARS = 200


@dataclass(frozen=True)
class Sorting:
    """A block, its rows to remove, and, where lines are cut, the files that say which."""

    block: Block
    removed: npt.NDArray[np.int64]
    near: npt.NDArray[np.bool_]
    lines: Path | None = None
    repeated: tuple[Path, ...] = ()

    @property
    def reasons(self) -> dict[int, str]:
        """Why rows go, by their number."""
        numbers = (self.block.start + self.removed).tolist()
        return {n: NEAR if near else EXACT for n, near in zip(numbers, self.near, strict=True)}


def deduplicate(
    draft: Draft, text: Artifact, earlier: Sequence[Artifact], rule: Rule, line_words: int | None
) -> tuple[Found, Account]:
    """Search and sort out; the draft gets the text that stays, its index, and the ledger.

    `line_words`: lines of so many words are cut where an earlier document has them; None: no lines.
    """
    fixed: list[Block] = []
    for artifact in earlier:
        fixed += blocks_of(artifact, rows_of(fixed), indexed=True)
    new = blocks_of(text, rows_of(fixed))
    found = find_duplicates(draft, [*fixed, *new], rule)
    work = [Sorting(block, *found.within(block)) for block in new]
    if line_words is not None:
        lines, repeated = find_repeated(draft, [*fixed, *new], found, line_words)
        work = [
            Sorting(w.block, w.removed, w.near, path, tuple(repeated))
            for w, path in zip(work, lines[len(fixed) :], strict=True)
        ]
    account = sort_blocks(draft, work, partial(_sort, line_words or 0), [b.size for b in new])
    account.close(draft)
    _write_index(draft, work, found.sketches[len(fixed) :], rule, line_words is not None)
    return found, account


def rows_of(blocks: Sequence[Block]) -> int:
    """How many documents these blocks have."""
    return sum(block.rows for block in blocks)


def _sort(line_words: int, work: Sorting, rows: Sorter) -> None:
    reasons = work.reasons
    known = repeated_in(work.lines, work.repeated) if work.lines else None
    for first, batch in work.block.batches():
        verdicts = [reasons.get(number) for number in range(first, first + batch.num_rows)]
        if known:
            batch, empty = _without_lines(batch, first, known, line_words, verdicts, rows)
            verdicts = [v or (CUT if e else None) for v, e in zip(verdicts, empty, strict=True)]
        rows.split(batch, verdicts)


def _without_lines(
    batch: pa.RecordBatch,
    first: int,
    known: Repeated,
    line_words: int,
    verdicts: Sequence[str | None],
    rows: Sorter,
) -> tuple[pa.RecordBatch, npt.NDArray[np.bool_]]:
    """The batch with its repeated lines cut, and which documents consist of nothing else.

    Those, and what is removed anyway, keep their text: it is their sample among the rejects.
    """
    texts = batch["text"]
    lines = split_lines(texts, line_words)
    stays = np.array([verdict is None for verdict in verdicts])
    drop = known.drop(lines, np.arange(first, first + len(texts))) & stays[lines.texts]
    shorter = cut(texts, lines, drop)
    touched = np.zeros(len(texts), np.bool_)
    touched[lines.texts[drop]] = True
    blank = pc.equal(pc.binary_length(pc.utf8_trim_whitespace(shorter)), 0)
    empty = touched & blank.to_numpy(zero_copy_only=False)
    drop &= ~empty[lines.texts]
    rows.account.counts.update(
        lines=int(drop.sum()),
        documents=int((touched & ~empty).sum()),
        bytes=int((lines.ends - lines.begins)[drop].sum()),
    )
    if not rows.account.notes:
        for line in np.flatnonzero(drop)[:1].tolist():
            id = batch["id"][int(lines.texts[line])].as_py()
            rows.account.notes.append({"id": id, "line": _sample(texts, lines, line)})
    index = batch.schema.get_field_index("text")
    return batch.set_column(index, "text", cut(texts, lines, drop)), empty


def _sample(texts: pa.Array, lines: Lines, line: int) -> str:
    data, _ = text_buffer(texts)
    content = data[lines.begins[line] : lines.ends[line]].tobytes().decode()
    return mask(content.strip()[:SAMPLE_CHARS])


def _write_index(
    draft: Draft, work: Sequence[Sorting], sketches: Sequence[Path], rule: Rule, cut_lines: bool
) -> None:
    """The sketches of what stays, one file for the text files of a block."""
    at_once = workers(draft, [w.block for w in work])
    if cut_lines:  # other texts than those that were sketched
        kept = [block_of(sorted(draft.path.glob(f"text-{n:05d}-*"))) for n in range(len(work))]
        paths = phase(draft, "index", partial(sketch_block, rule.sketched), kept, at_once)
    else:
        removed = [(path, w.removed) for path, w in zip(sketches, work, strict=True)]
        paths = phase(draft, "index", keep_sketches, removed, at_once)
    for number, path in enumerate(paths):
        (draft.path / f"index-{number:05d}.arrow").hardlink_to(path)
