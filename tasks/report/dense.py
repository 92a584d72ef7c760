"""The report's section on dense networks: figures, and the algorithm number by number."""

from collections.abc import Sequence
from typing import Any

from cluster.artifact import Artifact
from tasks.report import words

View = dict[str, Any]
NAMED = {"cross_entropy": "cross-entropy", "mse": "squared error"}


def dense(made: Sequence[Artifact]) -> list[View]:
    """A view of each network; none without any."""
    return [
        {
            "name": artifact.manifest.label,
            "loss": NAMED[artifact.manifest.facts["loss"]],
            "sizes": artifact.manifest.facts["sizes"],
            "figures": [(words.label(k), v) for k, v in artifact.manifest.metrics.items()],
            "steps": artifact.manifest.facts["steps"],
        }
        for artifact in made
    ]
