"""The card of a text, or of its shards: where it came from, under which licences, what was left out
and why. From the records of its ancestors alone; what they do not tell is `unknown`.

After Gebru et al. 2021, Datasheets for Datasets (arXiv 1803.09010); front matter as the Hugging
Face hub reads it.
"""

from collections.abc import Sequence
from typing import Any

import yaml

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.store import Store
from tasks.data.text import PATTERN
from tasks.report.model_card import UNKNOWN, sources
from tasks.report.template import fill

View = dict[str, Any]
SIZES = ((1e3, "n<1K"), (1e4, "1K<n<10K"), (1e5, "10K<n<100K"), (1e6, "100K<n<1M"))
SIZES += ((1e7, "1M<n<10M"), (1e8, "10M<n<100M"))
ERASED = "erased"


def render(text: Artifact, store: Store) -> str:
    """The card as Markdown. Raises BadInput for an artifact that is neither text nor shards."""
    if text.manifest.stage != "shards" and not text.files(PATTERN):
        raise BadInput(
            f"{text.name} is no text: name an artifact of redact or shards, say; of a model, "
            "`headrace export` writes the card"
        )
    lineage = store.lineage(text)
    ledgers = [one for one in lineage if one.manifest.ledger][::-1]
    masked = [one.manifest.facts["counts"] for one in lineage if one.manifest.stage == "redact"]
    known = {
        "name": text.manifest.recipe,
        "made": text.name,
        "fingerprint": text.fingerprint,
        "created": text.manifest.created[:10],
        "rows": text.manifest.rows,
        "tokens": text.manifest.tokens,
        "sources": sources(lineage),
        "ledgers": ledgers,
        "masked": {kind: n for counts in masked for kind, n in counts.items() if n},
        "redacted": bool(masked),
        "searched": [b for one in lineage for b in one.manifest.facts.get("benchmarks", [])],
        "made_by_models": any(one.manifest.stage == "synthesize" for one in lineage),
        "erased": sum(one.manifest.ledger.rejects.get(ERASED, 0) for one in ledgers),  # type: ignore[union-attr]
    }
    return _front_matter(text, lineage) + fill("dataset_card.md.j2", known)


def _front_matter(text: Artifact, lineage: Sequence[Artifact]) -> str:
    """What the hub reads: the licences of the rows, each once, and how many rows there are."""
    reads = (one for one in lineage if one.manifest.stage == "read")
    told = (source["licenses"] for one in reads for source in one.manifest.facts["sources"])
    names = sorted({name for licenses in told for name in licenses})
    rows = text.manifest.rows or 0
    size = next((name for most, name in SIZES if rows < most), "n>100M")
    said: View = {"license": "other", "license_name": ", ".join(names) or UNKNOWN}
    said |= {"size_categories": [size], "tags": ["headrace"]}
    return f"---\n{yaml.safe_dump(said, sort_keys=False)}---\n\n"
