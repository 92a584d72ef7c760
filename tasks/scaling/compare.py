"""Variants of one recipe side by side: what was varied, and what each scored on held-out text."""

from typing import Any

from cluster.artifact import Artifact
from cluster.stage import stage
from cluster.store import Draft


@stage(version=1, tracked=True)
def compare(scores: list[Artifact], variants: list[dict[str, Any]], draft: Draft) -> None:
    """Set the held-out scores of some models beside the values that tell them apart.

    Facts are `rows` (the values of a variant and its metrics, in the order given) and `best`, the
    values with the fewest bits per byte. Also as `variants.csv`.
    """
    from tasks.scaling.runs import write

    rows = [
        {**values, **score.manifest.metrics} for values, score in zip(variants, scores, strict=True)
    ]
    by = "bits_per_byte" if all("bits_per_byte" in row for row in rows) else "heldout_loss"
    best = min(range(len(rows)), key=lambda i: rows[i][by])
    draft.rows = len(rows)
    draft.facts |= {"rows": rows, "best": variants[best]}
    draft.metrics = {by: rows[best][by]}
    draft.tracker.params(variants[best])
    draft.tracker.metrics([{"step": i, by: row[by]} for i, row in enumerate(rows)])
    write(draft.path / "variants.csv", rows)
