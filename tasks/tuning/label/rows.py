"""Sentences with tags: rows of two lists, or columns with a word a line and an empty line between
sentences, as of the CoNLL shared tasks and of Universal Dependencies.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.errors import BadInput
from tasks.data.reading.formats import data_suffix
from tasks.data.row_files import read_row_file, read_text
from tasks.tuning.files import COLUMN_SUFFIXES, ROW_SUFFIXES, row_file
from tasks.tuning.label.settings import LabelSettings
from tasks.tuning.rows import digest, field_of

CONLLU = ".conllu"
CONLLU_COLUMNS = (1, 3)  # from 0: the form, and its universal part of speech
DOCUMENT = "-DOCSTART-"


@dataclass(frozen=True)
class Sentence:
    """Words and the tag of each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    id: str

    @property
    def key(self) -> str:
        """What is read of it."""
        return "\0".join(self.words)

    @property
    def group(self) -> str:
        """Equal sentences stay together."""
        return digest(self.key)

    @property
    def order(self) -> str:
        """The key rows are sorted by."""
        return digest(self.key, *self.tags)


def read_sentences(settings: LabelSettings, data: str) -> list[Sentence]:
    """The sentences of a file. Raises BadInput naming the line for a word without a tag, and what
    is no list of words.
    """
    path = row_file(data, ROW_SUFFIXES + COLUMN_SUFFIXES)
    if data_suffix(path.name) in COLUMN_SUFFIXES:
        found = list(_columns(path, settings.column))
    else:
        found = [
            Sentence(*_lists(row, settings, path, number), str(row.get("id", number)))
            for number, row in read_row_file(path)
        ]
    return sorted((one for one in found if one.words), key=lambda one: one.order)


def _lists(
    row: dict[str, Any], settings: LabelSettings, path: Path, number: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    words, tags = (field_of(row, (n,), path, number) for n in (settings.tokens, settings.tags))
    if not isinstance(words, list) or not isinstance(tags, list) or len(words) != len(tags):
        raise BadInput(
            f"{path}, line {number}: '{settings.tokens}' and '{settings.tags}' must be lists of "
            "the same length, a tag for every word"
        )
    return tuple(map(str, words)), tuple(map(str, tags))


def _columns(path: Path, column: int | None) -> Iterator[Sentence]:
    """The sentences of a file with a word a line; `column` counts from 1, None is the last one or,
    of CoNLL-U, the universal part of speech.
    """
    universal = data_suffix(path.name) == CONLLU
    word, tag = CONLLU_COLUMNS if universal else (0, -1)
    tag = tag if column is None else column - 1
    start, words, tags = 1, list[str](), list[str]()
    for number, line in enumerate((*read_text(path).split("\n"), ""), 1):
        cells = line.split("\t") if "\t" in line else line.split()
        if not line.strip():
            if words and words != [DOCUMENT]:
                yield Sentence(tuple(words), tuple(tags), str(start))
            start, words, tags = number + 1, [], []
        elif universal and (line.startswith("#") or not cells[0].isdigit()):
            continue  # comments, words of several tokens, empty nodes
        elif len(cells) <= max(word, tag, 1):
            raise BadInput(
                f"{path}, line {number} has {len(cells)} column(s), the tags are in column "
                f"{(tag if tag > 0 else 1) + 1}: {line[:60]!r}"
            )
        else:
            words.append(cells[word])
            tags.append(cells[tag].strip())


def are_spans(tags: Sequence[str]) -> bool:
    """Whether tags say where spans begin and go on (B-, I-, also E- and S-), not kinds of words."""
    inside = set(tags) - {"O"}
    return bool(inside) and all(tag[:2] in ("B-", "I-", "E-", "S-") for tag in inside)
