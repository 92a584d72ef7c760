"""Stage `read`: the sources become one text artifact; rows that cannot be used are set aside.

Identity is the content of the sources and the names of their fields, never where they lie.
"""

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

from cluster.errors import BadInput
from cluster.stage import Outcome, stage
from cluster.store import Draft
from tasks.data.reading import hashes
from tasks.data.reading.settings import ReadingSettings, SourceSettings
from tasks.data.reading.sources import Source, in_order, resolve

if TYPE_CHECKING:
    from tasks.data.ledger import Account

LISTED_FILES = 50
SHOWN_PLACES = 3
SHOWN_KEYS = 20


class ReadSettings(ReadingSettings):
    """The sources, and how much of them may be unusable."""

    sources: Annotated[tuple[SourceSettings, ...], hashes.SOURCES]


def check_read(found: Outcome, settings: ReadSettings) -> None:
    """Raise BadInput when more rows than allowed are malformed, or a source has another number of
    rows than it says.
    """
    sources = found.facts["sources"]
    total = found.ledger.rows_in if found.ledger else 0
    bad = sum(source["bad_rows"] for source in sources)
    if bad > settings.max_bad_rate * total:
        places = [place for source in sources for place in source["bad_places"]][:SHOWN_PLACES]
        raise BadInput(
            f"{bad} of {total} rows are malformed, {bad / total:.2%}, more than read.max_bad_rate "
            f"{settings.max_bad_rate:g} allows: {_rejects(found)}; the first: {', '.join(places)}. "
            "Mend them or raise the rate"
        )
    if any(source.rows is not None for source in settings.sources):
        for source, facts in zip(hashes.found_sources(settings.sources), sources, strict=True):
            _check_rows(source.source, facts["rows"] + facts["rejected"])


@stage(version=7, gate=check_read)
def read(settings: ReadSettings, draft: Draft) -> None:
    """Read all sources into text blocks, sorted by label and content, whatever their order.

    Facts: `sources`, of each what was read and what was set aside (`_describe`).
    Raises BadInput when a file is damaged, a field does not exist, no row is left, more than
    `max_bad_rate` of the rows are malformed, a source has another number of rows than it says, or a
    file changes meanwhile. Rows of a licence that a source does not take, and erased ones, are set
    aside without their text.
    """
    from tasks.data.blocks import split_blocks
    from tasks.data.reading.erasures import kept
    from tasks.data.reading.intake import Block, blocks, read_block

    pairs, erasures = _sources(settings), kept()
    sources = [source for source, _ in pairs]
    work: list[Block] = []
    for source, content in pairs:
        applying = hashes.found_source(source, content, erasures).erased
        work += blocks(source, [one for one in erasures if one.id in applying])
    account = split_blocks(draft, work, read_block, [block.size for block in work])
    account.close(draft)
    draft.facts["sources"] = [_describe(source, account) for source in sources]
    if not account.rows_out:
        check_read(draft, settings)
        raise BadInput(f"0 of {account.rows_in} rows are usable: {_rejects(draft)}")


def _sources(settings: ReadSettings) -> list[tuple[Source, str]]:
    """The sources with their content hashes, in the order they are read."""
    sources = resolve(settings.sources)
    return in_order(sources, hashes.content_hashes(sources))


def _describe(source: Source, account: "Account") -> dict[str, Any]:
    notes = [note for note in account.notes if note["label"] == source.label]
    licenses = Counter[str]()
    for note in notes:
        licenses.update(note["licenses"])
    return {
        "label": source.label,
        "path": source.settings.path,
        "text": source.settings.text,
        "keys": _keys(source),
        "licenses": dict(licenses.most_common()),
        "rows": licenses.total(),
        "rejected": sum(note["rejected"] for note in notes),
        "bad_rows": sum(note["bad"] for note in notes),
        "bad_places": [place for note in notes for place in note["places"]][:SHOWN_PLACES],
        "renamed_ids": sum(note["renamed"] for note in notes),
        "files": len(source.files),
        "ignored_files": source.ignored + sum(note["ignored"] for note in notes),
        "bytes": sum(file.size for file in source.files),
        "first_files": [file.name for file in source.files[:LISTED_FILES]],
    }


def _keys(source: Source) -> list[str]:
    from tasks.data.reading.decompress import Damaged
    from tasks.data.reading.records import keys

    try:
        return keys(source.files[0], source.settings)[:SHOWN_KEYS] if source.files else []
    except Damaged:  # one that is left out: any other would have failed before
        return []


def _rejects(found: Outcome) -> str:
    rejects = Counter(found.ledger.rejects if found.ledger else {})
    return ", ".join(f"{reason} {n}" for reason, n in rejects.most_common()) or "no rows at all"


def _check_rows(source: SourceSettings, found: int) -> None:
    """A file cut between two compressed members looks whole; only its number of rows tells."""
    expected = source.rows
    if expected not in (None, found):
        raise BadInput(
            f"source '{source.path}' has {found} rows, its recipe says {expected}; "
            "fetch it again, or correct `rows:` in the source"
        )
