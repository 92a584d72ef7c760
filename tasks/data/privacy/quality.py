"""Precision and recall by kind on labelled sentences.

    python -m tasks.data.privacy.quality [FILE ...] [--names MODEL]

A row is `{"text": ..., "spans": [{"start": 0, "end": 4, "kind": "email"}]}`, places in characters.
A file of them is JSON lines, or a JSON list as Presidio's evaluation has it (`full_text`, spans of
`entity_type`, `start_position`, `end_position`), plain or compressed. A labelled instance is found
when redactions, of whatever kind, cover all its letters and digits: it is gone. A redaction is
right when it touches a labelled instance of its own kind. The sentences that come with the package
(labelled.jsonl) are made up; half of them hold only numbers and words that look like personal data.
"""

import argparse
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cluster.errors import BadInput
from tasks.data.privacy.names import recogniser
from tasks.data.privacy.pii import find
from tasks.data.privacy.spans import KINDS, Span, settle
from tasks.data.reading.decompress import read_chunks
from tasks.data.row_files import read_row_file

OWN = Path(__file__).with_name("labelled.jsonl")
# What Presidio calls our kinds; its others (places, dates, organisations) are not ours.
PRESIDIO = {
    "EMAIL_ADDRESS": "email",
    "IP_ADDRESS": "ip",
    "CREDIT_CARD": "card",
    "IBAN_CODE": "iban",
    "PHONE_NUMBER": "phone",
    "US_SSN": "national_id",
    "STREET_ADDRESS": "address",
    "ADDRESS": "address",
    "PERSON": "name",
}


class Labelled(NamedTuple):
    """A text and its instances."""

    text: str
    spans: list[Span]


class Quality(NamedTuple):
    """Of one kind: labelled instances and those found, redactions and those that were right."""

    kind: str
    instances: int
    found: int
    redactions: int
    right: int

    @property
    def recall(self) -> float | None:
        """Share of the labelled instances that were found; None without any."""
        return self.found / self.instances if self.instances else None

    @property
    def precision(self) -> float | None:
        """Share of the redactions that were right; None without any."""
        return self.right / self.redactions if self.redactions else None


def measure(
    rows: Iterable[Labelled], redactions: Callable[[str], Sequence[Span]], kinds: Iterable[str]
) -> list[Quality]:
    """How well `redactions(text)` finds what is labelled, one entry for each of the kinds."""
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in kinds}
    for text, labelled in rows:
        made = redactions(text)
        gone = {place for span in made for place in range(span.start, span.end)}
        for span in labelled:
            if span.kind in counts:
                counts[span.kind]["instances"] += 1
                counts[span.kind]["found"] += _is_gone(text, span, gone)
        for span in made:
            if span.kind in counts:
                counts[span.kind]["redactions"] += 1
                counts[span.kind]["right"] += any(_same(span, other) for other in labelled)
    return [Quality(kind, *(n[f] for f in Quality._fields[1:])) for kind, n in counts.items()]


def _is_gone(text: str, span: Span, gone: set[int]) -> bool:
    return all(p in gone for p in range(span.start, span.end) if text[p].isalnum())


def _same(redaction: Span, labelled: Span) -> bool:
    touches = redaction.start < labelled.end and labelled.start < redaction.end
    return touches and redaction.kind == labelled.kind


def read_labelled(path: Path) -> list[Labelled]:
    """The rows of a labelled file. Raises BadInput naming the row that is none."""
    try:
        content = b"".join(read_chunks(path)).decode()
    except (BadInput, UnicodeDecodeError) as error:
        raise BadInput(f"redact.labelled: {path} cannot be read: {error}") from error
    if content.lstrip()[:1] != "[":
        return [_row(f"{path}, line {n}", row) for n, row in read_row_file(path)]
    try:
        rows = json.loads(content)
    except ValueError as error:
        raise BadInput(f"redact.labelled: {path} is not valid JSON: {error}") from error
    return [_row(f"{path}, entry {n}", row) for n, row in enumerate(rows, 1)]


def _row(place: str, row: Any) -> Labelled:
    try:
        text = row["full_text"] if "full_text" in row else row["text"]
        spans = [span for label in row["spans"] if (span := _span(label))]
        wrong = [s for s in spans if s.kind not in KINDS or not 0 <= s.start < s.end <= len(text)]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{place}: {error!r}; {EXPECTED}") from error
    if wrong:
        raise BadInput(f"{place}: {wrong[0]} is no span of the text; {EXPECTED}")
    return Labelled(text, spans)


def _span(label: dict[str, Any]) -> Span | None:
    """The span of a label; None for one of Presidio's that is no kind of ours."""
    if "entity_type" not in label:
        return Span(label["start"], label["end"], label["kind"])
    kind = PRESIDIO.get(label["entity_type"])
    return Span(label["start_position"], label["end_position"], kind) if kind else None


EXPECTED = (
    'expected {"text": ..., "spans": [{"start": 0, "end": 4, "kind": K}]}, places in characters, '
    f"K one of {', '.join(KINDS)}"
)


def content_hash(path: Path) -> str:
    """SHA-256 of a labelled file."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise BadInput(f"redact.labelled: {path} cannot be read: {error}") from error


def main(arguments: Sequence[str]) -> None:
    """Print the table of each file, or of the package's own; names with a model for them."""
    parser = argparse.ArgumentParser("tasks.data.privacy.quality")
    parser.add_argument("files", nargs="*", type=Path, default=[OWN])
    parser.add_argument("--names", metavar="MODEL", help="as `redact.names.model` in a recipe")
    options = parser.parse_args(arguments)
    kinds = [kind for kind in KINDS if kind != "name" or options.names]

    def redactions(text: str) -> list[Span]:
        more = next(recogniser(options.names)([text])) if options.names else []
        return settle([*find(text, kinds), *more])

    for path in options.files:
        print(path)
        for line in table(measure(read_labelled(path), redactions, kinds)):
            print(line)


def table(rows: Iterable[Quality]) -> Iterator[str]:
    """The lines of a table of qualities."""
    yield f"{'kind':12} {'instances':>9} {'recall':>7} {'redactions':>10} {'precision':>9}"
    for row in rows:
        recall, precision = (
            "-" if share is None else f"{share:.3f}" for share in (row.recall, row.precision)
        )
        yield f"{row.kind:12} {row.instances:9} {recall:>7} {row.redactions:10} {precision:>9}"


if __name__ == "__main__":
    main(sys.argv[1:])
