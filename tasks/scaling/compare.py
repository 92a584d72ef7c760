"""Variants of one recipe side by side: what was varied, and what each scored on held-out text."""

from typing import Any

from cluster.artifact import Artifact
from cluster.stage import stage
from cluster.store import Draft


@stage(version=2, tracked=True)
def compare(scores: list[Artifact], variants: list[dict[str, Any]], draft: Draft) -> None:
    """Set the held-out scores of some models beside the values that tell them apart.

    Facts are `rows` (the values of a variant and its metrics, in the order given; without metrics
    `status` and `why`) and `best`, the values with the fewest bits per byte, None without any. Also
    as `variants.csv`.
    """
    from tasks.scaling.runs import write

    rows = [
        {**values, **(score.manifest.metrics or score.manifest.facts)}
        for values, score in zip(variants, scores, strict=True)
    ]
    measured = [index for index, score in enumerate(scores) if score.manifest.metrics]
    by = "bits_per_byte" if all("bits_per_byte" in rows[i] for i in measured) else "heldout_loss"
    best = min(measured, key=lambda i: rows[i][by], default=None)
    draft.rows = len(rows)
    draft.facts |= {"rows": rows, "best": None if best is None else variants[best]}
    draft.tracker.metrics([{"step": i, by: rows[i][by]} for i in measured])
    if best is not None:
        draft.metrics = {by: rows[best][by]}
        draft.tracker.params(variants[best])
    write(draft.path / "variants.csv", rows)
