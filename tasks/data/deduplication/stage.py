"""Stage `dedup`: of documents that are the same, or nearly, one is kept.

Of each group the document with the lowest source label stays, and of one source that with the
lowest SHA-256 of its text (equal ones: the lowest id); documents of earlier artifacts come first.
The outcome so depends neither on the order of the input nor on the number of workers.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.stage import info, stage
from cluster.store import Draft, Store
from tasks.data.deduplication.settings import DedupSettings

if TYPE_CHECKING:
    from tasks.data.deduplication.search import Found
    from tasks.data.ledger import Account

SAMPLES = 5
CURVE = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)


def earlier_artifacts(store: Store, settings: DedupSettings) -> list[Artifact]:
    """The artifacts to deduplicate against, in the order of their fingerprints.

    Raises BadInput for one that is missing, no `dedup` artifact, or made with another LSH.
    """
    named = (_earlier(store, name) for name in settings.against)
    found = {artifact.fingerprint: artifact for artifact in named}
    for artifact in found.values():
        theirs = artifact.manifest.settings["settings"]
        for key in ("fuzzy", "bands", "rows") if settings.fuzzy else ():
            if theirs.get(key) != getattr(settings, key):
                raise BadInput(
                    f"dedup.against: {artifact.name} was made with {key} {theirs.get(key)}, this "
                    f"run has {getattr(settings, key)}; their indexes cannot be compared. Set "
                    f"dedup.{key} to {theirs.get(key)}, or build {artifact.name} again"
                )
    return [found[key] for key in sorted(found)]


def _earlier(store: Store, name: str) -> Artifact:
    try:
        artifact = store.get(name)
    except BadInput as error:
        raise BadInput(f"dedup.against: {error}") from error
    about = artifact.manifest
    if about.stage != "dedup" or about.version != info(dedup).version:
        raise BadInput(
            f"dedup.against: {artifact.name} has no index that this version reads; name the "
            "artifact of a `dedup` stage, built again if it is older"
        )
    return artifact


@stage(version=5)
def dedup(
    text: Artifact,
    settings: DedupSettings,
    draft: Draft,
    against: Sequence[Artifact] = (),
    beside: Artifact | None = None,
) -> None:
    """Remove exact and near duplicates, then repeated lines and passages of what is left.

    Also removed is what other artifacts keep already: those `against`, which the settings name (see
    `earlier_artifacts`), and `beside`, of the same run. So that later text can be compared with it
    in turn, the artifact holds an index of what it keeps.
    Facts: `near` (clusters and pairs of near duplicates, and how likely LSH finds a pair by its
    similarity), `against` (of each other artifact its `name`, its `rows`, and how many duplicates
    of them were `removed`), `cut` (what was cut, by kind).
    Raises BadInput when an earlier artifact changed or the disk is full.
    """
    from tasks.data.deduplication.decisions import Rule
    from tasks.data.deduplication.minhash import Family
    from tasks.data.deduplication.removal import deduplicate

    earlier = [*against, *([beside] if beside else [])]
    family = Family(settings.bands, settings.rows)
    threshold = settings.threshold if settings.fuzzy else None
    rule = Rule(settings.exact, threshold, family, draft.scratch)
    line_words = settings.line_words if settings.lines else None
    found, account = deduplicate(draft, text, earlier, rule, line_words, settings.passage_words)
    draft.facts["near"] = _describe_near(settings, found)
    draft.facts["against"] = _describe_earlier(found, earlier)
    kinds = {"lines": settings.lines, "passages": settings.passage_words is not None}
    draft.facts["cut"] = [_describe_cut(kind, account) for kind, wanted in kinds.items() if wanted]


def _describe_cut(kind: str, account: "Account") -> dict[str, Any]:
    """What was cut from documents that stay, and where a few were."""
    notes = [note for note in account.notes if note["kind"] == kind]
    return {
        "kind": kind,
        "count": account.counts[kind],
        "documents": account.counts[f"{kind}_documents"],
        "bytes": account.counts[f"{kind}_bytes"],
        "samples": [{"id": note["id"], "text": note["text"]} for note in notes[:SAMPLES]],
    }


def _describe_near(settings: DedupSettings, found: "Found") -> dict[str, Any]:
    """Clusters and pairs, and how likely LSH finds what."""
    from dataclasses import asdict

    import numpy as np

    from tasks.data.deduplication.minhash import Family

    facts = asdict(found.facts)
    expected, linked = facts.pop("expected_pairs"), facts["pairs_linked"]
    chances = Family(settings.bands, settings.rows).chances(np.array(CURVE))
    return facts | {
        "bands": settings.bands,
        "rows": settings.rows,
        "threshold": settings.threshold,
        "curve": [[s, round(p, 4)] for s, p in zip(CURVE, chances.tolist(), strict=True)],
        "estimated_recall": round(linked / expected, 4) if linked else None,
    }


def _describe_earlier(found: "Found", earlier: list[Artifact]) -> list[dict[str, Any]]:
    """How many documents each earlier artifact has, and how many duplicates of them went."""
    described = []
    start = 0
    for artifact in earlier:
        end = start + (artifact.manifest.rows or 0)
        removed = int(((found.keepers >= start) & (found.keepers < end)).sum())
        described.append({"name": artifact.name, "rows": end - start, "removed": removed})
        start = end
    return described
