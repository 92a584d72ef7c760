"""The report's plot of how far back through time gradients of recurrent networks reach."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

from cluster.artifact import Artifact
from tasks.report.plots import ACCENT, INK, WARM, svg

COLOURS = {"rnn": WARM, "gru": INK, "lstm": ACCENT}


def through_time(scores: Sequence[Artifact]) -> dict[str, Any]:
    """The plot, a line a network, and how many windows of text it is of; empty without any."""
    found = [f for s in scores if (f := s.manifest.facts.get("through_time")) and f["norms"]]
    if not found:
        return {}

    def draw(axes: Axes) -> None:
        named = set()
        for one in found:
            label = None if one["cell"] in named else one["cell"].upper()
            axes.plot(one["norms"], color=COLOURS[one["cell"]], label=label)
            named.add(one["cell"])
        axes.set_yscale("log")
        axes.set_xlabel("tokens back")
        axes.set_ylabel("gradient norm")
        axes.legend()

    drawn = svg(draw, "Gradient norm by distance back through time", (5.0, 2.8))
    return {"plot": drawn, "windows": min(one["windows"] for one in found)}
