"""The files of a source, taken in row by row: named, batched, and sorted into good and bad."""

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from cluster.errors import BadInput
from tasks.data.ledger import Sorter
from tasks.data.reading.licenses import corpus_licenses
from tasks.data.reading.records import Record, read_records
from tasks.data.reading.sources import Source, SourceFile
from tasks.data.text import BLOCK_BYTES, TEXT_SCHEMA

FLUSH_CHARS = 4 << 20
FLUSH_ROWS = 4096
SHOWN_KEYS = 20
SHOWN_PLACES = 3
# Well-formed rows without text are set aside but are no sign of damage.
HARMLESS = {"empty_text"}
log = logging.getLogger("headrace.read")


@dataclass(frozen=True)
class Block:
    """Files of one source that one worker reads, each with its license."""

    source: Source
    files: tuple[tuple[SourceFile, str | None], ...]

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.size for file, _ in self.files)


def blocks(source: Source) -> Iterator[Block]:
    """The files of a source in order, in groups of about 32 MiB; a larger one stays alone."""
    group: list[tuple[SourceFile, str | None]] = []
    size = 0
    for file, license in _licensed(source):
        if group and size + file.size > BLOCK_BYTES:
            yield Block(source, tuple(group))
            group, size = [], 0
        group.append((file, license))
        size += file.size
    yield Block(source, tuple(group))


def _licensed(source: Source) -> Iterator[tuple[SourceFile, str | None]]:
    if source.is_python and not source.settings.license:
        license_of = corpus_licenses(source.files)
        return ((file, license_of(file)) for file in source.files)
    return ((file, source.settings.license) for file in source.files)


def read_block(block: Block, rows: Sorter) -> None:
    """Read the files of a block; what was found goes into the account's notes."""
    intake = Intake(block.source, rows)
    for file, license in block.files:
        intake.read(file, license)
    rows.account.notes.append(
        {
            "label": block.source.label,
            "licenses": dict(intake.licenses),
            "bad": intake.bad,
            "renamed": intake.renamed,
            "places": intake.places,
        }
    )


class Intake:
    """Reads the files of one source into a sorter.

    A row is named `label/file:line`, or `label/id` where the source has an id field; an id that was
    seen before gets its place appended. `licenses` counts good rows by license, `bad` the malformed
    ones; `places` tells where the first of those are.
    """

    def __init__(self, source: Source, rows: Sorter):
        self.source = source
        self.licenses: Counter[str] = Counter()
        self.bad = 0
        self.renamed = 0
        self.places: list[str] = []
        self._rows = rows
        self._seen: set[str] = set()
        self._pending: list[tuple[str, str, str, str, str | None]] = []
        self._chars = 0

    def read(self, file: SourceFile, license: str | None) -> None:
        """Take in one file. Raises BadInput when it is damaged or lacks the text field."""
        reasons, keys, good = Counter[str](), dict[str, None](), 0
        for record in read_records(file, self.source.settings):
            origin = file.name if record.place is None else f"{file.name}:{record.place}"
            if record.reason is None:
                self._keep(record, origin, license)
                good += 1
            else:
                reasons[record.reason] += 1
                keys.update(dict.fromkeys(record.keys[: SHOWN_KEYS - len(keys)]))
                self._reject(record, origin, file)
        self._flush()
        if not good and reasons["missing_text"]:
            raise BadInput(
                f"{file.path}: no row has the field '{self.source.settings.text}'; the keys seen "
                f"are {', '.join(keys) or 'none'}; name one of them with `text:` in the source"
            )
        if not good and not reasons:
            log.warning("%s has no rows", file.path)

    def _keep(self, record: Record, origin: str, license: str | None) -> None:
        source = self.source.label
        self._pending.append((self._name(record, origin), record.text, source, origin, license))
        self._chars += len(record.text)
        self.licenses[license or "unknown"] += 1
        if self._chars >= FLUSH_CHARS or len(self._pending) >= FLUSH_ROWS:
            self._flush()

    def _reject(self, record: Record, origin: str, file: SourceFile) -> None:
        assert record.reason
        self._rows.reject(self._name(record, origin), origin, record.reason, record.sample)
        if record.reason not in HARMLESS:
            self.bad += 1
            if len(self.places) < SHOWN_PLACES:
                line = "" if record.place is None else f":{record.place}"
                self.places.append(f"{file.path}{line} ({record.reason})")

    def _name(self, record: Record, origin: str) -> str:
        label = self.source.label
        place = origin if origin.split(":")[0] == label else f"{label}/{origin}"
        if record.id is None:
            return place
        name = f"{label}/{record.id}"
        if name in self._seen:
            self.renamed += 1
            return f"{name}@{origin}"
        self._seen.add(name)
        return name

    def _flush(self) -> None:
        if self._pending:
            columns = list(zip(*self._pending, strict=True))
            arrays = [pa.array(c, f.type) for c, f in zip(columns, TEXT_SCHEMA, strict=True)]
            self._rows.keep(pa.RecordBatch.from_arrays(arrays, schema=TEXT_SCHEMA))
        self._pending, self._chars = [], 0
