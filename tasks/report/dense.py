"""The report's section on dense networks: figures, and the algorithm number by number."""

from collections.abc import Sequence
from typing import Any

from cluster.artifact import Artifact
from tasks.report import words

View = dict[str, Any]
NAMED = {"cross_entropy": "cross-entropy", "mse": "squared error"}
FIGURES = {
    "accuracy_low": "its 95 % interval, from",
    "accuracy_high": "its 95 % interval, to",
    "mse": "mean squared error",
    "mse_mean": "the same of the mean",
    "deviation": "standard deviation that fits best",
    "nats": "-log likelihood, nats a row",
    "nats_constant": "the same of the best constant",
    "rows": "held-out rows",
    "gradient_gap": "gradients beside differences, relative",
}


def dense(made: Sequence[Artifact]) -> list[View]:
    """A view of each network; none without any."""
    return [
        {
            "name": artifact.manifest.label,
            "loss": NAMED[artifact.manifest.facts["loss"]],
            "sizes": artifact.manifest.facts["sizes"],
            "figures": [
                (FIGURES.get(key) or words.label(key), value)
                for key, value in artifact.manifest.metrics.items()
            ],
            "steps": artifact.manifest.facts["steps"],
        }
        for artifact in made
    ]
