"""Texts with what is to be written for them: read, divided, laid out as the network reads them,
and put into batches of rows that are about as long as each other.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cluster.errors import BadInput
from model.config import Family
from tasks.data.reading.settings import TableSettings
from tasks.data.reading.sources import PYTHON
from tasks.data.row_files import RowLayout, read_row_file
from tasks.tokens.chat import NO_LOSS
from tasks.tokens.encoder import Encoder
from tasks.tokens.frames import read_frame
from tasks.tokens.permutation import permute
from tasks.tuning.common import padded
from tasks.tuning.files import python_rows, row_file
from tasks.tuning.rows import digest, distinct, held_apart, split
from tasks.tuning.text_to_text.settings import SHARES, PairsSettings, TextToTextSettings
from tasks.tuning.trees import statements_of_python

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class TextPair:
    """A source, and one or several targets that may be written for it; `prompt` is the source
    behind its prefix.
    """

    id: str
    prompt: str
    source: str
    targets: tuple[str, ...]

    @property
    def group(self) -> str:
        """Rows of one source are never divided."""
        return digest(self.source)

    @property
    def order(self) -> str:
        """The key rows are sorted by."""
        return digest(self.prompt, *self.targets)


@dataclass(frozen=True)
class Sides:
    """Rows to train on, to stop by, and to measure on; and why others are none of them."""

    train: list[TextPair]
    apart: list[TextPair]
    heldout: list[TextPair]
    rejects: Counter[str]


def rows_of(settings: TextToTextSettings) -> Sides:
    """The rows of all files. No source that is measured on is trained on, with any prefix.

    Raises BadInput for a row without its fields, and when a side is empty.
    """
    rejects: Counter[str] = Counter()
    found = [read_text_pairs(settings, settings.data, rejects)]
    found += [read_text_pairs(one, one.data, rejects) for one in settings.also]
    if settings.heldout is None:
        _, heldout = split(found[0], settings.heldout_share)
    else:
        heldout = read_text_pairs(settings, settings.heldout, rejects)
    known = {row.group for row in heldout}
    every = [row for rows in found for row in rows]
    train = [row for row in every if row.group not in known]
    if settings.heldout is not None:
        rejects["also_held_out"] += len(every) - len(train)
    if not train or not heldout:
        raise BadInput(
            f"'{settings.data}' leaves {len(train)} training rows and {len(heldout)} to measure "
            "on; it takes one of each"
        )
    train, apart = held_apart(train, settings.early_stopping)
    return Sides(train, apart, heldout[: settings.most_measured], +rejects)


def read_text_pairs(fields: PairsSettings, data: str, rejects: Counter[str]) -> list[TextPair]:
    """The rows of a file, in hash order; those that are empty or repeated are counted."""
    rows = []
    for place, row in _records(data, fields):
        if missing := [name for name in (fields.source, fields.target) if name not in row]:
            raise BadInput(f"{place} has no '{missing[0]}'; it has {', '.join(sorted(row))}")
        targets = row[fields.target]
        texts = [row[fields.source], *(targets if isinstance(targets, list) else [targets])]
        if not all(isinstance(text, str) for text in texts):
            raise BadInput(f"{place}: '{fields.source}' and '{fields.target}' must be texts")
        source, *written = (text.strip() for text in texts)
        if not source or not written or not all(written):
            rejects["empty"] += 1
        else:
            label = str(row.get("id", place))
            rows.append(TextPair(label, fields.prefix + source, source, tuple(written)))
    kept = distinct(rows, lambda row: row.order)
    rejects["repeated_row"] += len(rows) - len(kept)
    return sorted(kept, key=lambda row: row.order)


def _records(data: str, written: TableSettings) -> Iterator[tuple[str, dict[str, Any]]]:
    """Place and fields of every row of a file, or of the embedded corpus."""
    if data.startswith(PYTHON):
        yield from statements_of_python(python_rows(data))
        return
    path = row_file(data)
    for number, row in read_row_file(path, RowLayout(table=written)):
        yield f"{path}, line {number}", row


@dataclass(frozen=True)
class Layout:
    """How rows are laid out for a network.

    An encoder reads the source as its tokenizer frames a text, and a decoder writes the target and
    its end behind `start`. A decoder alone reads both as one text, with loss on the target.
    """

    encoder: Encoder
    family: Family
    length: int
    suffix: str
    start: Sequence[int]

    def prompt(self, row: TextPair) -> list[int]:
        """What is read before anything is written; a source that is too long loses its end."""
        ids = self.encoder.encode(row.prompt)
        behind = self.encoder.encode(self.suffix) if self.suffix else []
        if self.family == "decoder":
            ahead = self.encoder.opening
            return [*ahead, *ids[: self.length - len(ahead) - len(behind)], *behind]
        frame = read_frame(self.encoder, 1, self.family)
        return frame.lay(frame.cut([[*ids, *behind]], self.length)).ids

    def example(self, prompt: list[int], target: str) -> tuple[list[int], list[int], list[int]]:
        """Inputs, what the decoder of an encoder-decoder reads, and targets."""
        written = [*self.encoder.encode(target)[: self.length - 1], self.encoder.eod]
        if self.family == "encoder_decoder":
            return prompt, [*self.start, *written[:-1]], written
        whole = [*prompt, *written]
        return whole[:-1], [], [NO_LOSS] * (len(prompt) - 1) + written


def encode(
    rows: Sequence[TextPair], layout: Layout
) -> list[tuple[list[int], list[int], list[int]]]:
    """Every target of every row as an example of its own."""
    prompts = [layout.prompt(row) for row in rows]
    return [
        layout.example(prompt, target)
        for row, prompt in zip(rows, prompts, strict=True)
        for target in row.targets
    ]


def laid(examples: Sequence[tuple[list[int], list[int], list[int]]], pad: int) -> Arrays:
    """Examples side by side, `[rows, longest]`, with the lengths of both sides."""
    names = ("inputs", "decoder_inputs", "targets")
    found: Arrays = {}
    for name, column in zip(names, zip(*examples, strict=True), strict=True):
        fill = NO_LOSS if name == "targets" else pad
        longest = max(map(len, column))
        found[name] = np.full((len(column), longest), fill, np.int32)
        for row, ids in enumerate(column):
            found[name][row, : len(ids)] = ids
        found[f"{name}_length"] = np.array([len(ids) for ids in column], np.int32)
    return found


def buckets(arrays: Arrays, tokens: int) -> list[np.ndarray]:
    """Numbers of the rows of each batch: rows about as long as each other, in all so many tokens at
    most, padding included (but one row at least); in every epoch the same, as in fairseq.
    """
    sizes = np.stack([widths(arrays, name) for name in ("inputs", "decoder_inputs")], 1)
    shuffled = permute(np.arange(len(sizes)), len(sizes), 0, 0)
    order = shuffled[np.lexsort((sizes[shuffled, 0], sizes[shuffled, 1] + sizes[shuffled, 0]))]
    found: list[list[int]] = [[]]
    longest = np.zeros(2, np.int64)
    for row in order.tolist():
        longest = np.maximum(longest, sizes[row])
        if found[-1] and (len(found[-1]) + 1) * longest.sum() > tokens:
            found.append([])
            longest = sizes[row].astype(np.int64)
        found[-1].append(row)
    return [np.array(rows) for rows in found]


def widths(arrays: Arrays, name: str) -> np.ndarray:
    """Tokens that each row of one side takes in a batch, padding included."""
    return padded(arrays[f"{name}_length"], arrays[name].shape[1]).astype(np.int64)


def batch_of(arrays: Arrays, parts: Sequence[np.ndarray], pad: int) -> Arrays:
    """Rows by number as a batch `[parts, R, T]`: parts are filled up with rows without targets."""
    rows = max(1, *map(len, parts))
    chosen = np.concatenate(parts)
    found = {}
    for name in ("inputs", "decoder_inputs", "targets"):
        longest = max(1, int(widths(arrays, name)[chosen].max(initial=0)))
        shape, fill = (len(parts), rows, longest), NO_LOSS if name == "targets" else pad
        found[name] = np.full(shape, fill, np.int64)
        for place, numbers in enumerate(parts):
            width = min(longest, arrays[name].shape[1])
            found[name][place, : len(numbers), :width] = arrays[name][numbers, :width]
    lengths = np.ones((len(parts), rows, 1), np.int64)  # a row of none sees one token of padding
    for place, numbers in enumerate(parts):
        lengths[place, : len(numbers), 0] = arrays["inputs_length"][numbers]
    found["documents"] = (np.arange(found["inputs"].shape[2]) < lengths).astype(np.int64)
    if not arrays["decoder_inputs_length"].any():
        del found["decoder_inputs"]
    return found


def parts_of(rows: np.ndarray) -> list[np.ndarray]:
    """A batch in pieces that may be of different workers."""
    return [rows[part::SHARES] for part in range(SHARES)]
