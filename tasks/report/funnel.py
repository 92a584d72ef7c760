"""The funnel: what each data stage let through and what it took out, with samples of both."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

from cluster.artifact import Artifact
from cluster.manifest import parents

View = dict[str, Any]
SAMPLES_PER_REASON = 2
ASKED = ("grade", "synthesize")
"""Stages whose rows are requests to a model: what goes in is no part of what came in before."""


def funnel(artifacts: Sequence[Artifact], per_reason: int = SAMPLES_PER_REASON) -> list[View]:
    """For each stage with a ledger: rows in and out, rejects by reason, most frequent first,
    samples of them, `per_reason` of each, and of what was kept.

    `left` is the share of the rows that entered the first of the stages a row went through; `alike`
    are pairs of near duplicates, `lines` what became of lines that several documents have.
    """
    rows: list[View] = []
    entered: dict[str, int] = {}
    for artifact in artifacts:
        book, facts = artifact.manifest.ledger, artifact.manifest.facts
        if book is None:
            continue
        stage, label = artifact.manifest.stage, artifact.manifest.label
        before = () if stage in ASKED else parents(artifact.manifest)
        heads = [entered[f] for f in before if f in entered]
        entered[artifact.fingerprint] = total = max(heads, default=book.rows_in)
        removed = [
            {"reason": reason, "rows": count, "samples": _samples(facts, reason, per_reason)}
            for reason, count in sorted(book.rejects.items(), key=lambda item: -item[1])
        ]
        rows.append(
            {
                "stage": f"{stage} {label}" if label else stage,
                "rows_in": book.rows_in,
                "rows_out": book.rows_out,
                "left": min(1.0, book.rows_out / total) if total else 0.0,
                "removed": removed,
                "kept": _shown(facts.get("kept", [])),
                "lines_removed": facts.get("lines_removed", {}),
                "alike": facts.get("near", {}).get("examples", []),
                "cut": facts.get("cut", []),
            }
        )
    return rows


def side_by_side(row: View) -> Iterator[tuple[View | None, View | None]]:
    """Removed samples, each with its reason, beside kept ones; None where one side is shorter."""
    removed = [
        sample | {"reason": group["reason"]}
        for group in row["removed"]
        for sample in group["samples"]
    ]
    return zip_longest(removed, row["kept"][: max(1, len(removed))])


def _samples(facts: View, reason: str, most: int) -> list[View]:
    samples = facts.get("samples", {})
    return _shown(samples.get(reason, [])[:most]) if isinstance(samples, dict) else []


def _shown(samples: Sequence[View]) -> list[View]:
    return [{"origin": sample.get("origin"), "text": sample.get("text")} for sample in samples]
