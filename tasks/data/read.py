"""Stage `read`: the sources become one text artifact; rows that cannot be used are set aside.

Identity is the content of the sources and the names of their fields, never where they lie.
"""

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pydantic import Field

from cluster.errors import BadInput
from cluster.settings import Settings
from cluster.stage import stage
from cluster.store import Draft
from tasks.data import hashes
from tasks.data.sources import Source, SourceFile, SourceSettings, resolve

if TYPE_CHECKING:
    from tasks.data.intake import Intake
    from tasks.data.ledger import Sorter

LISTED_FILES = 50
log = logging.getLogger("headrace.read")


class ReadSettings(Settings):
    """Where the text comes from, and how much of it may be unusable."""

    sources: tuple[SourceSettings, ...]
    max_bad_rate: float = Field(
        0.01, ge=0, le=1, description="largest share of malformed rows; more fails the run"
    )


def read_identity(settings: ReadSettings) -> dict[str, Any]:
    """What `read` depends on: per source its label, content, field names and license."""
    sources = resolve(settings.sources)
    contents = hashes.content_hashes(sources)
    return {
        "sources": [
            {"label": source.label, "content": content}
            | source.settings.model_dump(include={"text", "id", "license"})
            for source, content in zip(sources, contents, strict=True)
        ],
        "max_bad_rate": settings.max_bad_rate,
    }


@stage(version=1, identity=read_identity)
def read(settings: ReadSettings, draft: Draft) -> None:
    """Read all sources, in the order given, into `text-*.parquet`.

    Raises BadInput when a file is damaged, a field does not exist, no row is left, more than
    `max_bad_rate` of the rows are malformed, or a file changes meanwhile.
    """
    from tasks.data.intake import Intake
    from tasks.data.ledger import Sorter

    sources = resolve(settings.sources)
    total, done = sum(f.size for s in sources for f in s.files), 0
    intakes, described = [], []
    with Sorter(draft) as rows:
        for source in sources:
            intake = Intake(source, rows)
            for file, license in _licensed(source):
                intake.read(file, license)
                done += file.size
                draft.progress(done, total, "bytes")
            intakes.append(intake)
            described.append(_describe(intake))
            log.info("%s: %d rows", source.label, intake.licenses.total())
    _check_rate(rows, intakes, settings.max_bad_rate)
    if read_identity(settings) != draft.spec.settings["settings"]:
        raise BadInput("a source changed while it was read; run again when nothing writes to it")
    draft.facts["sources"] = described


def _licensed(source: Source) -> Iterator[tuple[SourceFile, str | None]]:
    """The files of a source, each with its license."""
    from tasks.data.licenses import corpus_licenses

    if source.is_python and not source.settings.license:
        license_of = corpus_licenses(source.files)
        return ((file, license_of(file)) for file in source.files)
    return ((file, source.settings.license) for file in source.files)


def _describe(intake: "Intake") -> dict[str, Any]:
    source = intake.source
    return {
        "label": source.label,
        "path": source.settings.path,
        "licenses": dict(intake.licenses.most_common()),
        "rows": intake.licenses.total(),
        "bad_rows": intake.bad,
        "renamed_ids": intake.renamed,
        "files": len(source.files),
        "ignored_files": source.ignored,
        "bytes": sum(file.size for file in source.files),
        "first_files": [file.name for file in source.files[:LISTED_FILES]],
    }


def _check_rate(rows: "Sorter", intakes: "list[Intake]", max_bad_rate: float) -> None:
    bad = sum(intake.bad for intake in intakes)
    places = [place for intake in intakes for place in intake.places][:3]
    if bad > max_bad_rate * rows.rows_in:
        raise BadInput(
            f"{bad} of {rows.rows_in} rows are malformed, more than max_bad_rate {max_bad_rate:g} "
            f"allows: {_counts(rows)}; the first: {', '.join(places)}. Mend them or raise the rate"
        )
    if not rows.rows_out:
        raise BadInput(f"0 of {rows.rows_in} rows are usable: {_counts(rows) or 'no rows at all'}")


def _counts(rows: "Sorter") -> str:
    return ", ".join(f"{reason} {n}" for reason, n in rows.reasons.most_common())
