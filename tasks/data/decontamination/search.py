"""Which documents hold an n-gram of an evaluation item: a native pass over hashes, then a check.

1. The items' n-grams are hashed (words folded and in lower case, punctuation dropped) into one
   table.
2. A kernel hashes every n-gram of every document of a batch and looks it up.
3. Only documents with a hit are looked at as text: the words themselves have to be equal.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import BaseModel

from cluster.errors import BadInput
from cluster.handover import here
from tasks.data.decontamination.items import Item
from tasks.data.decontamination.settings import DecontaminateSettings
from tasks.data.kernels import kernel
from tasks.data.kernels.buffers import Bytes, Offsets, text_buffer
from tasks.data.kernels.characters import lower_case, word_kinds
from tasks.data.kernels.folding import fold, fold_text
from tasks.data.kernels.words import (
    Hashes,
    Kinds,
    LowerCase,
    hash_shingles,
    hash_words,
    letters_each,
    word_pattern,
)
from tasks.data.ledger import Splitter

PASSAGE_CHARS = 300
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Index:
    """The n-grams of all items, by hash.

    `lengths`: how many words an n-gram may have, ascending (a short item is one n-gram of all its
    words). `hashes` [G]: sorted. `owners[starts[k]:starts[k + 1]]`: the items that hold n-gram k,
    by their place in the list of all items.
    """

    lengths: Ints
    hashes: Hashes
    starts: Ints
    owners: Ints

    @classmethod
    def build(cls, items: Sequence[Item], ngram: int, min_words: int) -> "Index":
        """Index every item. Raises BadInput when none has `min_words` words."""
        pairs = [np.zeros((0, 2), np.uint64)]
        lengths = set()
        for number, item in enumerate(items):
            folded = fold_text(item.text)
            words = word_pattern().findall(folded)
            # Where a script parts no words, `each` characters stand for one.
            each = letters_each(folded)
            if len(words) >= each * min(min_words, ngram):
                lengths.add(length := min(each * ngram, len(words)))
                grams = np.unique(_ngrams(folded, length))
                pairs.append(np.stack([grams, np.full_like(grams, number)], axis=1))
        if not lengths:
            raise BadInput(
                f"decontaminate: none of {len(items)} items has {min_words} words; set "
                "`decontaminate.min_words` lower"
            )
        every = np.concatenate(pairs)
        every = every[np.lexsort((every[:, 1], every[:, 0]))]
        hashes, starts = np.unique(every[:, 0], return_index=True)
        starts = np.append(starts, len(every)).astype(np.int64)
        return cls(np.array(sorted(lengths)), hashes, starts, every[:, 1].astype(np.int64))

    def save(self, path: Path) -> None:
        """Write the arrays, for the workers."""
        np.savez(path, **vars(self))

    @classmethod
    def load(cls, path: Path) -> "Index":
        """The index that `save` wrote."""
        with np.load(path) as arrays:
            return cls(**arrays)

    def items_of(self, gram: int) -> list[int]:
        """The items that hold n-gram number `gram`."""
        return [int(i) for i in self.owners[self.starts[gram] : self.starts[gram + 1]]]


class ItemVerdict(BaseModel):
    """Whether an evaluation item is in the corpus: one row of `items.jsonl`."""

    benchmark: str
    id: str
    ngrams: int = 0
    found: int = 0
    dirty: bool = False
    ngram: str = ""
    item: str = ""
    document: str = ""
    passage: str = ""


def split_block(
    index_path: Path,
    items: Sequence[Item],
    settings: DecontaminateSettings,
    batches: Iterator[pa.RecordBatch],
    rows: Splitter,
) -> None:
    """Keep what shares no n-gram with an item; the n-grams found go into the account's notes."""
    index = Index.load(here(index_path))
    table = _table(index.hashes)
    for batch in batches:
        data, offsets = text_buffer(fold(batch.column("text")))
        hit = np.zeros(batch.num_rows, np.bool_)
        for length in index.lengths:
            _mark(data, offsets, word_kinds(), lower_case(), table, int(length), hit)
        reasons: list[str | None] = [None] * batch.num_rows
        for row in np.flatnonzero(hit):
            id, text = batch["id"][int(row)].as_py(), fold_text(batch["text"][int(row)].as_py())
            found = _matches(index, items, id, text)
            rows.account.notes += found
            if found and settings.action == "remove":
                reasons[int(row)] = f"contaminated:{found[0]['benchmark']}"
        rows.split(batch, reasons)


def verdicts(
    items: Sequence[Item], index: Index, notes: Sequence[dict[str, Any]]
) -> list[ItemVerdict]:
    """One row per evaluation item that is long enough to look for, with its first match."""
    rows: dict[tuple[str, str], ItemVerdict] = {}
    keys = [(item.benchmark, item.id) for item in items]
    for owner, grams in enumerate(np.bincount(index.owners, minlength=len(items))):
        if grams:
            benchmark, id = keys[owner]
            row = rows.setdefault(keys[owner], ItemVerdict(benchmark=benchmark, id=id))
            row.ngrams += int(grams)
    seen: set[tuple[int, int]] = set()
    for note in notes:
        pair = (note["owner"], note["gram"])
        if pair not in seen:
            seen.add(pair)
            row = rows[keys[note["owner"]]]
            row.found += 1
            if not row.dirty:
                shown = {k: note[k] for k in ("ngram", "item", "document", "passage")}
                rows[keys[note["owner"]]] = row.model_copy(update={"dirty": True, **shown})
    return list(rows.values())


def too_short(items: Sequence[Item], looked_for: Sequence[ItemVerdict]) -> Counter[str]:
    """How many items of each set have no field that is long enough to look for."""
    known = {(row.benchmark, row.id) for row in looked_for}
    return Counter(item[0] for item in {item[:2] for item in items} - known)


def _matches(index: Index, items: Sequence[Item], id: str, text: str) -> list[dict[str, Any]]:
    """The n-grams of a document that are an item's, word for word; each once."""
    found = []
    words = list(word_pattern().finditer(text))
    for length in (int(n) for n in index.lengths if n <= len(words)):
        hashes, first = np.unique(_ngrams(text, length), return_index=True)
        _, grams, places = np.intersect1d(index.hashes, hashes, return_indices=True)
        for gram, place in sorted(zip(grams, first[places], strict=True), key=lambda p: int(p[1])):
            start, end = words[place].start(), words[place + length - 1].end()
            same = [w.group().lower() for w in words[place : place + length]]
            for owner in index.items_of(int(gram)):
                if _holds(items[owner].text, same):
                    found.append(
                        {
                            "owner": owner,
                            "gram": int(gram),
                            "benchmark": items[owner].benchmark,
                            "ngram": text[start:end],
                            "item": items[owner].text[:PASSAGE_CHARS],
                            "document": id,
                            "passage": _around(text, start, end),
                        }
                    )
    return found


def _holds(text: str, ngram: list[str]) -> bool:
    words = [word.lower() for word in word_pattern().findall(fold_text(text))]
    return any(words[i : i + len(ngram)] == ngram for i in range(len(words) - len(ngram) + 1))


def _around(text: str, start: int, end: int) -> str:
    spare = max(0, PASSAGE_CHARS - (end - start)) // 2
    return text[max(0, start - spare) : end + spare]


def _ngrams(text: str, length: int) -> Hashes:
    """The hash of every `length` consecutive words, in order."""
    data, offsets = text_buffer([text])
    out = np.empty(len(data) // 2 + 2, np.uint64)
    count = hash_words(data, 0, int(offsets[1]), word_kinds(), lower_case(), out)
    return out[: hash_shingles(out, count, length)] if count >= length else out[:0]


def _table(hashes: Hashes) -> Hashes:
    """An open-addressing table of the hashes; 0 is an empty place."""
    size = 1 << max(4, int(len(hashes) * 2).bit_length())
    table = np.zeros(size, np.uint64)
    _fill(table, hashes)
    return table


@kernel
def _fill(table: Hashes, hashes: Hashes) -> None:
    last = len(table) - 1
    for hash in hashes:
        place = np.int64(hash & np.uint64(last))
        while table[place] != 0 and table[place] != hash:
            place = (place + 1) & last
        table[place] = hash


@kernel
def _mark(
    data: Bytes,
    offsets: Offsets,
    kinds: Kinds,
    lower: LowerCase,
    table: Hashes,
    length: int,
    hit: npt.NDArray[np.bool_],
) -> None:
    """Set `hit` for the texts with an n-gram of `length` words that is in the table."""
    longest = 0
    for row in range(len(hit)):
        longest = max(longest, offsets[row + 1] - offsets[row])
    words = np.empty(longest // 2 + 2, np.uint64)
    last = len(table) - 1
    for row in range(len(hit)):
        count = hash_words(data, offsets[row], offsets[row + 1], kinds, lower, words)
        if count < length or hit[row]:
            continue
        for j in range(hash_shingles(words, count, length)):
            place = np.int64(words[j] & np.uint64(last))
            while table[place] != 0 and table[place] != words[j]:
                place = (place + 1) & last
            if table[place] == words[j]:
                hit[row] = True
                break
