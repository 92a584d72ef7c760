"""Stage `dedup`: of documents that are the same, or nearly, one is kept.

Exact: the first in order stays. Near: the longest stays, whatever the order.
"""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from cluster.artifact import Artifact
from cluster.settings import Settings
from cluster.stage import stage
from cluster.store import Draft

if TYPE_CHECKING:
    from tasks.data.deduplication.fuzzy import Clusters
    from tasks.data.ledger import Sorter

EXACT, NEAR = "exact_duplicate", "near_duplicate"


class DedupSettings(Settings):
    """Which duplicates to remove, and how alike near ones are."""

    exact: bool = Field(True, description="texts equal up to white space and Unicode form")
    fuzzy: bool = Field(True, description="texts that share most of their word 5-grams")
    threshold: float = Field(0.8, gt=0, le=1, description="Jaccard similarity of near duplicates")
    bands: int = Field(14, ge=1, le=256, description="LSH bands; more find more and cost more")
    rows: int = Field(8, ge=1, le=64, description="MinHash values per band; fewer find less alike")


@stage(version=1)
def dedup(text: Artifact, settings: DedupSettings, draft: Draft) -> None:
    """Remove exact duplicates, then near duplicates of what is left."""
    import pyarrow.parquet as pq

    from tasks.data.blocks import sort_blocks
    from tasks.data.deduplication.exact import exact_duplicates
    from tasks.data.text import PATTERN, read_texts

    def texts() -> Iterator[str]:
        for number, one in enumerate(read_texts(text)):
            draft.progress(number, text.manifest.rows or 0, "rows")
            yield one

    removed: dict[int, str] = {}
    if settings.exact:
        removed |= _removed(exact_duplicates(texts), EXACT)
    if settings.fuzzy:
        found = _near_duplicates(texts, settings, removed)
        removed |= _removed(found.keepers, NEAR)
        draft.facts["near"] = _describe(text, found)
    paths = text.files(PATTERN)
    starts = itertools.accumulate((pq.read_metadata(p).num_rows for p in paths), initial=0)
    work = [
        (path, {n - start: reason for n, reason in removed.items() if n >= start})
        for path, start in zip(paths, starts, strict=False)
    ]
    account = sort_blocks(draft, work, _sort, [path.stat().st_size for path in paths])
    account.close(draft)


def _sort(work: tuple[Path, dict[int, str]], rows: "Sorter") -> None:
    from tasks.data.text import file_batches

    path, removed = work
    start = 0
    for batch in file_batches(path):
        rows.split(batch, [removed.get(start + i) for i in range(batch.num_rows)])
        start += batch.num_rows


def _removed(keepers: list[int], reason: str) -> dict[int, str]:
    return {number: reason for number, keeper in enumerate(keepers) if keeper != number}


def _near_duplicates(
    texts: Callable[[], Iterator[str]], settings: DedupSettings, gone: dict[int, str]
) -> "Clusters":
    from tasks.data.deduplication.fuzzy import LshSettings, near_duplicates

    return near_duplicates(
        texts, LshSettings(settings.threshold, settings.bands, settings.rows), gone
    )


def _describe(text: Artifact, found: "Clusters") -> dict[str, Any]:
    return {
        "clusters": found.clusters,
        "largest_cluster": found.largest,
        "candidates": found.candidates,
        "pairs_checked": found.pairs_checked,
        "pairs_linked": found.pairs_linked,
        "pairs_skipped": found.pairs_skipped,
        "examples": _examples(text, found),
    }


def _examples(text: Artifact, found: "Clusters") -> list[dict[str, Any]]:
    """A few linked pairs by id, with their similarity."""
    from tasks.data.text import read_batches

    shown = {number for a, b, _ in found.examples for number in (a, b)}
    ids: dict[int, str] = {}
    start = 0
    for batch in read_batches(text, ["id"]):
        ids |= {
            n: batch["id"][n - start].as_py() for n in shown if start <= n < start + batch.num_rows
        }
        start += batch.num_rows
    return [{"a": ids[a], "b": ids[b], "jaccard": s} for a, b, s in found.examples]
