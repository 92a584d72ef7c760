"""The files of a source, taken in: rows named, batched, and split into good and bad."""

import logging
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from cluster.errors import BadInput
from tasks.data.ledger import Splitter
from tasks.data.reading.archives import members
from tasks.data.reading.decompress import Damaged, Entry
from tasks.data.reading.erasures import Erasure
from tasks.data.reading.formats import is_archive
from tasks.data.reading.licenses import corpus_licenses
from tasks.data.reading.parts import Part, Stretch, parts
from tasks.data.reading.records import is_readable, read_entry
from tasks.data.reading.refusals import refusals
from tasks.data.reading.rows import Record, found_batch
from tasks.data.reading.settings import SourceSettings
from tasks.data.reading.sources import Source, SourceFile, open_regular
from tasks.data.text import BLOCK_BYTES, TEXT_SCHEMA

FLUSH_CHARS = 4 << 20
FLUSH_ROWS = 4096
SHOWN_KEYS = 20
SHOWN_PLACES = 3
# Well-formed rows without text are set aside but are no sign of damage; damaged files a source may
# have said to leave out.
HARMLESS = {"damaged_file", "empty_text", "http_status", "not_html", "no_main_text"}
log = logging.getLogger("headrace.read")


@dataclass(frozen=True)
class Block:
    """Files of one source that one worker reads, each with its license, or `part` of one."""

    label: str
    settings: SourceSettings
    files: tuple[tuple[SourceFile, str | None], ...]
    erasures: tuple[Erasure, ...]
    part: Part | None = None

    @property
    def size(self) -> int:
        """Bytes on disk."""
        if self.part:
            return self.part.end - self.part.start
        return sum(file.size for file, _ in self.files)


def blocks(source: Source, erasures: Sequence[Erasure]) -> Iterator[Block]:
    """The files of a source in order, in groups of about 32 MiB; a larger one stays alone, a very
    large one is cut into parts. What the `erasures` have is left out.
    """
    new = partial(Block, source.label, source.settings, erasures=tuple(erasures))
    group: list[tuple[SourceFile, str | None]] = []
    size = 0
    for file, license in _licensed(source):
        if group and size + file.size > BLOCK_BYTES:
            yield new(tuple(group))
            group, size = [], 0
        pieces = parts(file, source.settings)
        if len(pieces) > 1:
            yield from (new(((file, license),), part=part) for part in pieces)
        else:
            group.append((file, license))
            size += file.size
    if group:
        yield new(tuple(group))


def _licensed(source: Source) -> Iterator[tuple[SourceFile, str | None]]:
    if source.is_python and not source.settings.license:
        license_of = corpus_licenses(source.files)
        return ((file, license_of(file)) for file in source.files)
    return ((file, source.settings.license) for file in source.files)


def read_block(block: Block, rows: Splitter) -> None:
    """Read the files of a block; what was found goes into the account's notes."""
    intake = Intake(block, rows)
    for file, license in block.files:
        intake.read(file, license, block.part)
        file.check_unchanged()
    intake.flush()
    rows.account.notes.append(
        {
            "label": block.label,
            "licenses": dict(intake.licenses),
            "rejected": rows.account.reasons.total(),
            "bad": intake.bad,
            "renamed": intake.renamed,
            "ignored": intake.ignored,
            "places": intake.places,
        }
    )


class Intake:
    """Reads the files of one block into a splitter.

    `licenses` counts good rows by license, `bad` the malformed ones, `renamed` ids that a file had
    twice, `ignored` members of archives in no known format; `places` tells where the first bad rows
    are.
    """

    def __init__(self, block: Block, rows: Splitter):
        self.licenses: Counter[str] = Counter()
        self.bad = 0
        self.renamed = 0
        self.ignored = 0
        self.places: list[str] = []
        self._label = block.label
        self._settings = block.settings
        self._erasures = block.erasures
        self._rows = rows
        # Good records that wait, each with its id, origin and the license of its file.
        self._pending: list[tuple[Record, str, str, str | None]] = []
        self._chars = 0

    def read(self, file: SourceFile, license: str | None, part: Part | None = None) -> None:
        """Take in a file, or part of it. Raises BadInput when it is damaged or lacks the field."""
        if damage := _damage(file, self._settings, part):
            log.warning("left out: %s", damage)
            names = _Names(self._label, file.name, file.name)
            self._rows.reject(names.id(None, file.name), file.name, "damaged_file", damage)
            return
        for entry in _entries(file, self._settings, part):
            if is_readable(entry, self._settings):
                self._read(entry, _Names(self._label, file.name, entry.name), license)
            else:
                self.ignored += 1

    def flush(self) -> None:
        """Pass on the records that wait."""
        if self._pending:
            records, ids, origins, licenses = zip(*self._pending, strict=True)
            self._keep(found_batch(records), pa.array(ids), pa.array(origins), pa.array(licenses))
        self._pending, self._chars = [], 0

    def _read(self, entry: Entry, names: "_Names", license: str | None) -> None:
        reasons, keys, good = Counter[str](), list[str](), 0
        for found in read_entry(entry, self._settings):
            if not isinstance(found, Record):
                self.flush()
                good += found.num_rows
                origins = names.origins(found["place"])
                self._keep(found, names.ids(found), origins, license)
            elif found.reason is None:
                good += 1
                self._wait(found, names, license)
            else:
                reasons[found.reason] += 1
                keys += [key for key in found.keys[:SHOWN_KEYS] if key not in keys]
                self._reject(found, names, entry)
        self.renamed += names.renamed
        if not good and reasons["missing_text"]:
            lacking = self._settings.lacking(self._settings.text, keys[:SHOWN_KEYS])
            raise BadInput(f"{entry.shown} has {lacking}")
        if not good and not reasons:
            log.warning("%s has no rows", entry.shown)

    def _wait(self, record: Record, names: "_Names", license: str | None) -> None:
        origin = names.origin(record.place)
        self._pending.append((record, names.id(record.id, origin), origin, license))
        self._chars += len(record.text)
        if self._chars >= FLUSH_CHARS or len(self._pending) >= FLUSH_ROWS:
            self.flush()

    def _keep(self, found: pa.RecordBatch, ids: pa.Array, origins: pa.Array, license: Any) -> None:
        """Pass on good rows; `license`, one or one each, is for those that name none."""
        count = found.num_rows
        licenses = found["license"]
        if licenses.null_count:
            own = license if isinstance(license, pa.Array) else pa.scalar(license, pa.string())
            licenses = pc.coalesce(licenses, own.cast(pa.string()))
        source = pa.repeat(pa.scalar(self._label, pa.string()), count)
        columns = [ids, found["text"], source, origins, licenses, found["label"]]
        batch = self._allowed(pa.RecordBatch.from_arrays(columns, schema=TEXT_SCHEMA))
        for item in pc.value_counts(batch["license"]).to_pylist():
            self.licenses[item["values"] or "unknown"] += item["counts"]
        self._rows.keep(batch)

    def _allowed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch without those that may not be taken in, of whose text nothing stays,
        not even a sample.
        """
        reasons = refusals(batch, self._settings, self._erasures)
        if not reasons:
            return batch
        for row, reason in reasons.items():
            self._rows.reject(batch["id"][row].as_py(), batch["origin"][row].as_py(), reason, "")
        return batch.filter(pa.array([row not in reasons for row in range(batch.num_rows)]))

    def _reject(self, record: Record, names: "_Names", entry: Entry) -> None:
        assert record.reason
        origin = names.origin(record.place)
        self._rows.reject(names.id(record.id, origin), origin, record.reason, record.sample)
        if record.reason not in HARMLESS:
            self.bad += 1
            if len(self.places) < SHOWN_PLACES:
                line = "" if record.place is None else f":{record.place}"
                self.places.append(f"{entry.shown}{line} ({record.reason})")


def _entries(file: SourceFile, settings: SourceSettings, part: Part | None) -> Iterator[Entry]:
    """The file, or part of it, or what an archive holds."""
    with open_regular(file.path) as raw:
        entry = Entry(file.name, str(file.path), file.size, raw, seekable=True)
        if part:
            raw.seek(part.start)
            stretch = cast(IO[bytes], Stretch(raw, part.end - part.start))
            entry = Entry(file.name, str(file.path), file.size, stretch, line=part.line)
        for member in members(entry) if is_archive(file.name) else [entry]:
            yield replace(member, encoding=settings.encoding)


def _damage(file: SourceFile, settings: SourceSettings, part: Part | None) -> str | None:
    """What keeps a file from being read to its end, where such files are to be left out.

    As a whole: a checksum comes behind what it is of, so what was read before the damage shows
    could be other text than was written.
    """
    if settings.on_damaged == "fail":
        return None
    try:
        for entry in _entries(file, settings, part):
            if is_readable(entry, settings):
                deque(read_entry(entry, settings), maxlen=0)
    except Damaged as error:
        return str(error)
    return None


class _Names:
    """Ids and origins of the rows of one file, or member of the archive `whole`.

    A row is named `label/file:line`, or `label/file/id` where it has an id; the file is left out
    where the source is that file. An id that the file had before gets its line appended. Ids are
    remembered by their hash: two with the same one would only get a longer name.
    """

    def __init__(self, label: str, whole: str, file: str):
        self.renamed = 0
        self._file = file
        self._prefix = f"{label}{file[len(whole) :]}" if whole == label else f"{label}/{file}"
        self._seen: set[int] = set()

    def origin(self, place: int | None) -> str:
        return self._file if place is None else f"{self._file}:{place}"

    def origins(self, places: pa.Array) -> pa.Array:
        prefix = pa.scalar(f"{self._file}:")
        return pc.binary_join_element_wise(prefix, places.cast(pa.string()), pa.scalar(""))

    def id(self, name: str | None, origin: str) -> str:
        place = origin.removeprefix(self._file)
        return f"{self._prefix}{place}" if name is None else self._unique(name, place[1:])

    def ids(self, found: pa.RecordBatch) -> pa.Array:
        """The ids of a batch: all its rows have a name, or none has."""
        places = found["place"].cast(pa.string())
        if found["id"].null_count:
            return pc.binary_join_element_wise(pa.scalar(f"{self._prefix}:"), places, pa.scalar(""))
        named = zip(found["id"].to_pylist(), places.to_pylist(), strict=True)
        return pa.array([self._unique(name, place) for name, place in named])

    def _unique(self, name: str, place: str) -> str:
        full = f"{self._prefix}/{name}"
        digest = xxhash.xxh3_64_intdigest(full.encode())
        self.renamed += digest in self._seen
        while digest in self._seen:
            full += f"@{place}"
            digest = xxhash.xxh3_64_intdigest(full.encode())
        self._seen.add(digest)
        return full
