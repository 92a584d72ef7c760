"""What a model made of the text, for the report: counts, what it took, samples beside passages."""

from collections.abc import Mapping, Sequence
from typing import Any

from cluster.artifact import Artifact

View = dict[str, Any]
STAGES = ("grade", "synthesize")


def made(stages: Mapping[str, Sequence[Artifact]]) -> list[View]:
    """For each stage that asked a model: `kinds` with what was asked, made and refused by reason,
    `dropped` pairs, `scores` of grades, what it `used`, and samples.
    """
    return [_view(artifact) for name in STAGES for artifact in stages.get(name, ())]


def _view(artifact: Artifact) -> View:
    manifest, facts = artifact.manifest, artifact.manifest.facts
    refused = manifest.ledger.rejects if manifest.ledger else {}
    return {
        "stage": manifest.stage,
        "model": facts["model"],
        "sampling": facts["sampling"],
        "used": facts["used"],
        "dropped": facts["dropped"],
        "scores": facts["scores"],
        "templates": facts["templates"],
        "shown": facts["shown"],
        "kinds": [
            {"kind": kind, **counts, "refused": _of_kind(refused, kind)}
            for kind, counts in facts["kinds"].items()
        ],
    }


def _of_kind(refused: Mapping[str, int], kind: str) -> dict[str, int]:
    """Reasons of one kind, the most frequent first."""
    own = {r.partition(":")[2]: n for r, n in refused.items() if r.partition(":")[0] == kind}
    return dict(sorted(own.items(), key=lambda item: -item[1]))
